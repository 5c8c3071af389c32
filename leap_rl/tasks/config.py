"""The options of tasks, checked. Importing this imports no torch."""

from __future__ import annotations

from dataclasses import MISSING, dataclass
from typing import Final, get_args

from leap_rl.core.choices import OnDivergence
from leap_rl.envs.atari.settings import AtariSettings
from leap_rl.tasks.options import AUTO, SIZES, TaskOptions
from leap_rl.tasks.suite import Suite
from leap_rl.tasks.suites import OPTIONS, suite_of

PAPER: Final = SIZES["atari"]


@dataclass(frozen=True)
class TaskConfig(TaskOptions):
    """What is learned: games, and a budget for each. "Paper" is Leap's appendix on Atari."""

    def __post_init__(self) -> None:
        suite = self.suite
        if self.on_divergence not in get_args(OnDivergence):
            raise ValueError(
                f"task.on_divergence = {self.on_divergence!r}: must be one of "
                f"{', '.join(get_args(OnDivergence))}"
            )
        for name in ("agent_steps", "num_envs", "unroll_length"):
            value = getattr(self, name)
            if value != AUTO and value < 1:
                raise ValueError(f"task.{name} = {value}: must be at least 1")
        if not suite.sized_by_games:
            for name, value in self.sized(PAPER).items():
                object.__setattr__(self, name, value)  # derived, as resolved_games is
        for name in self.without_effect:
            same = getattr(self, name) == _default(name)
            if name == "atari":  # a run's options say what the preset left open
                same = self.atari.settings == AtariSettings()
            if not same:
                raise ValueError(
                    f"task.{name}: has no effect with task.kind = {self.kind}; leave it out"
                )
        games = [self.games] if isinstance(self.games, str) else list(self.games)
        # The one field that is derived; a frozen dataclass is set through object.
        object.__setattr__(self, "resolved_games", suite.resolve_games(games))
        known = self.num_envs != AUTO
        if self.mix_games and known and self.num_envs < len(self.resolved_games):
            raise ValueError(
                f"task.num_envs = {self.num_envs}: task.mix_games = true deals the environments "
                f"over all of task.games, which are {len(self.resolved_games)}; take at least as "
                "many environments, or fewer games"
            )

    @property
    def suite(self) -> Suite:
        return suite_of(self.kind)

    @property
    def without_effect(self) -> tuple[str, ...]:
        return tuple(option for option in OPTIONS if option not in self.suite.options)

    @property
    def updates(self) -> int:
        return self.suite.updates(self)

    def check_budget(self) -> None:
        """Raise ValueError if the budget is known, and no whole number of updates."""
        if not self.is_sized:
            return
        each = self.agent_steps_per_update
        if self.agent_steps % each:
            below = self.agent_steps - self.agent_steps % each
            fitting = f"{below} or {below + each}" if below else f"{each}"
            raise ValueError(
                f"task.agent_steps = {self.agent_steps}: must be a whole number of updates of "
                f"task.num_envs × task.unroll_length = {each} agent steps; take {fitting}"
            )


def _default(name: str) -> object:
    if name in PAPER._fields:
        return getattr(PAPER, name)
    one = TaskConfig.__dataclass_fields__[name]
    return one.default if one.default_factory is MISSING else one.default_factory()
