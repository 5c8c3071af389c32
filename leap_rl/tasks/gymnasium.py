"""Gymnasium environments: their options, and how their tasks are made of them.

Importing this costs no import of torch or of Gymnasium.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, ClassVar, Literal, get_args

from leap_rl.envs.gymnasium.ids import parse_game
from leap_rl.learners.config import AgentConfig
from leap_rl.tasks.family import check_games
from leap_rl.tasks.played import PlayedFamily

if TYPE_CHECKING:
    from leap_rl.envs.vector import GameVector
    from leap_rl.learners.learner import Learner
    from leap_rl.tasks.config import TaskConfig

Pad = Literal["refuse", "zeros"]
"""What happens to observations that are smaller than others of the pool."""

MinAtarView = Literal["channels", "palette"]
"""How MinAtar's games are shown."""

LARGEST_OBSERVATION = 2**22
"""Elements."""


@dataclass(frozen=True)
class GymnasiumConfig:
    """How Gymnasium environments, one's own too, are run."""

    pad: Pad = "refuse"
    """What happens where the observations of task.games differ in shape. refuse: it is an error,
    which names the shapes. zeros: each gets zeros after its last element, or after its last row,
    column and channel, up to the largest."""

    observation_shape: list[int] | None = None
    """What the encoder sees: height, width and channels of an image, or the length of a vector.
    None takes the largest of task.games, found when the run is made and written down. To learn a
    smaller game from an initialization of larger ones, give theirs, and pad."""

    minatar: MinAtarView = "channels"
    """How MinAtar's games are shown. channels: as they are, a plane of 10 × 10 cells for each kind
    of thing, which differ between games. palette: as pictures of 10 × 10 × 3, in colors that mean
    the same in all of them (leap_rl/envs/minatar/colors.py lists them)."""

    remake: bool = False
    """Make a new environment for each episode, for games whose reset leaves something of the last
    episode behind. Takes as long as making one does."""

    reward_clip: float = math.inf
    """Rewards are clipped to [-reward_clip, reward_clip] for learning, never for reporting.
    Infinity clips nothing. In place of agent.reward_clip, whose default is Atari's."""

    def __post_init__(self) -> None:
        for name, choices in (("pad", get_args(Pad)), ("minatar", get_args(MinAtarView))):
            if (value := getattr(self, name)) not in choices:
                raise ValueError(
                    f"task.gymnasium.{name} = {value!r}: must be one of {', '.join(choices)}"
                )
        if not self.reward_clip > 0:
            raise ValueError(
                f"task.gymnasium.reward_clip = {self.reward_clip}: must be greater than 0 "
                "(infinity clips nothing)"
            )
        shape = self.observation_shape
        if shape is not None and not (
            len(shape) in (1, 3) and min(shape) > 0 and math.prod(shape) <= LARGEST_OBSERVATION
        ):
            raise ValueError(
                f"task.gymnasium.observation_shape = {shape}: must be [height, width, channels] "
                f"or [length], of at most {LARGEST_OBSERVATION} elements"
            )

    @property
    def shape(self) -> tuple[int, ...] | None:
        """The observation's shape, where it is known."""
        return None if self.observation_shape is None else tuple(self.observation_shape)

    @property
    def palette(self) -> bool:
        """Whether MinAtar's games are shown in colors."""
        return self.minatar == "palette"


class GymnasiumFamily(PlayedFamily):
    """Environments by their ids, one's own too."""

    kind = "gymnasium"
    options: ClassVar[tuple[str, ...]] = ("agent_steps", "num_envs", "unroll_length", "gymnasium")
    ignored_agent_options: ClassVar[tuple[str, ...]] = ("reward_clip",)
    spreads_environments = True

    def resolve_games(self, games: Sequence[str]) -> tuple[str, ...]:
        """Return each id in its one spelling."""
        if list(games) in ([], ["pretraining"], ["all"]):
            raise ValueError(
                f"task.games = {list(games)}: task.kind = {self.kind} has no pools; name one or "
                "more ids, such as CartPole-v1"
            )
        ids = tuple(parse_game(game).name for game in games)
        return check_games(self.kind, ids, ids)

    def imports(self, task: TaskConfig) -> tuple[str, ...]:
        """Return the modules that register the ids."""
        modules = (parse_game(game).module for game in task.resolved_games)
        return tuple(dict.fromkeys(module for module in modules if module is not None))

    def resolve_task(self, task: TaskConfig) -> TaskConfig:
        """Return the config with the shape of its observations.

        Each game is tried for a while: ValueError if one cannot be made, cannot be played here, or
        does not repeat itself, or if they have no shape in common.
        """
        from leap_rl.envs.pool_checks import check_repeats

        shape = self._common_shape(task)
        for game in task.resolved_games:
            check_repeats(game, remake=task.gymnasium.remake, palette=task.gymnasium.palette)
        return replace(task, gymnasium=replace(task.gymnasium, observation_shape=list(shape)))

    def resolve_agent(self, tasks: Learner) -> AgentConfig:
        """Return the agents' settings with an encoder that fits the observations."""
        from leap_rl.learners.hardware import resolve

        return resolve(_with_fitting_encoder(tasks.agent, self.observation_shape(tasks.task)))

    def check_machine(self, tasks: Learner) -> None:
        """Refuse a machine on which one of the games cannot be made, too."""
        self._common_shape(tasks.task)
        self.check_processor(tasks)

    def observation_shape(self, task: TaskConfig) -> tuple[int, ...]:
        """Return the shape that was written down, or else the games' own."""
        return task.gymnasium.shape or self._common_shape(task)

    def player(self, tasks: Learner) -> AgentConfig:
        """Return the agents' settings with the games' bound of rewards and a fitting encoder."""
        clipped = replace(tasks.agent, reward_clip=tasks.task.gymnasium.reward_clip)
        return _with_fitting_encoder(clipped, self.observation_shape(tasks.task))

    def make_envs(self, tasks: Learner, game: str) -> Callable[[int], GameVector]:
        """Return what makes a game's B environments from a seed."""
        from leap_rl.envs.replayed import make_gymnasium

        return lambda seed: make_gymnasium(
            game,
            num_envs=tasks.task.num_envs,
            seed=seed,
            shape=self.observation_shape(tasks.task),
            remake=tasks.task.gymnasium.remake,
            palette=tasks.task.gymnasium.palette,
            processes=tasks.env_processes,
        )

    def _common_shape(self, task: TaskConfig) -> tuple[int, ...]:
        from leap_rl.envs.pool_checks import common_shape

        return common_shape(
            task.resolved_games,
            pad=task.gymnasium.pad,
            palette=task.gymnasium.palette,
            wanted=task.gymnasium.shape,
        )


def _with_fitting_encoder(agent: AgentConfig, shape: tuple[int, ...]) -> AgentConfig:
    """Return the settings, with another encoder where the default one fits no such observations.

    That is the one of vectors, or the small one for images that are too small for the default.
    """
    from leap_rl.networks.encoders import least_size

    if agent.encoder != AgentConfig().encoder:
        return agent
    if len(shape) == 1:
        return replace(agent, encoder="mlp")
    small = min(shape[:2]) < least_size(agent.encoder)
    return replace(agent, encoder="minatar") if small else agent
