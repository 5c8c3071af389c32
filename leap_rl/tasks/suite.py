"""A suite of tasks: what is played or classified, whoever learns it.

Importing one imports no torch: each imports its environments when they are needed.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import replace
from difflib import get_close_matches
from functools import partial
from typing import TYPE_CHECKING, ClassVar, Literal, NamedTuple, TypeVar

from leap_rl.core.choices import REWARD_CLIP, Domain
from leap_rl.tasks.options import MIXED, TaskOptions

if TYPE_CHECKING:
    from leap_rl.envs.vector import GameVector, RestorableEnvs
    from leap_rl.envs.workers import Slice

T = TypeVar("T", bound=TaskOptions)


class ActionSpace(NamedTuple):
    """The actions of a game."""

    size: int
    """Discrete actions, or numbers in a continuous one."""
    continuous: bool = False

    @property
    def num_logits(self) -> int:
        """Outputs of a policy: one an action, or each number's mean and log deviation."""
        return 2 * self.size if self.continuous else self.size


class OwnVector(NamedTuple):
    """What a user's own `gymnasium.vector.VectorEnv` says of itself."""

    next_step: bool
    """Whether an action after an end is ignored, see `envs.vector.VectorStep`."""
    restorable: bool
    """Whether it can be restored from a snapshot."""


class Suite(ABC):
    """Games by name with their budgets, by default in agent steps."""

    kind: ClassVar[str]
    """Its name, `task.kind`."""
    subject: ClassVar[str]
    """What its games are, for messages: "games to play"."""
    learned_by: ClassVar[str]
    """The learner, `agent.algorithm`, where none is named."""
    options: ClassVar[tuple[str, ...]]
    """The fields of `TaskOptions` that have an effect on some suites alone, and on this one."""
    sized_by_games: ClassVar[bool] = False
    """Whether `auto` in budgets and numbers of environments waits for what the games are like."""
    unit: ClassVar[Literal["agent_steps", "examples"]] = "agent_steps"
    """What a task's budget counts: agent steps, or images that an update learns from."""
    compared_by: ClassVar[str | None] = None
    """What compares initializations where `leap-rl evaluate` cannot, for want of episodes."""
    evaluation_games: ClassVar[str | None] = None
    """The pool that an evaluation learns where no games are named."""
    validation_games: ClassVar[tuple[str, ...] | None] = None
    """The games that validate a run where none are named."""
    spreads_environments: ClassVar[bool] = False
    """Whether `runtime.env_processes` spreads its environments over processes."""
    records_video: ClassVar[bool] = False
    """Whether an agent at play can be recorded."""

    @abstractmethod
    def resolve_games(self, games: Sequence[str]) -> tuple[str, ...]:
        """Return the games that `task.games` names; none as long as it takes the data to know.

        ValueError: one does not exist, or comes twice, or there is none.
        """

    def imports(self, task: TaskOptions) -> tuple[str, ...]:
        """Return the modules that have to be imported for the games to be known."""
        return ()

    def updates(self, task: TaskOptions) -> int:
        """Return K, the updates in a task's budget, where each batch is learned from once."""
        return task.agent_steps // task.agent_steps_per_update

    def with_updates(self, task: T, updates: int) -> T:
        """Return the tasks with another budget."""
        return replace(task, agent_steps=updates * task.agent_steps_per_update)

    def budget(self, task: TaskOptions) -> int:
        """Return a task's budget, in its unit."""
        return task.agent_steps

    def frames_per_agent_step(self, task: TaskOptions) -> int:
        """Return the frames of an agent step; 0 where there is no emulator."""
        return 0

    def resolve(self, task: T) -> T:
        """Return the options with what data or environments know; ValueError if they lack it."""
        return task

    def check_machine(self, task: TaskOptions) -> None:  # noqa: B027 - most need nothing
        """Raise ValueError for a machine that lacks data or a game; trainers call it first."""


class GameSuite(Suite):
    """Games to play, each a vector of environments."""

    subject = "games to play"
    learned_by = "a2c"
    reward_clip: ClassVar[float] = REWARD_CLIP
    """The bound of rewards for learning where `agent.reward_clip` is auto."""

    @abstractmethod
    def observation_shape(self, task: TaskOptions) -> tuple[int, ...]:
        """Return what an encoder sees: height, width and channels, or a vector's length.

        ValueError: a game cannot be made, or the games have no shape in common.
        """

    @abstractmethod
    def environments(self, task: TaskOptions, game: str) -> Slice:
        """Return what makes any number of a game's environments; ValueError if there is none."""

    @abstractmethod
    def action_space(self, task: TaskOptions, game: str) -> ActionSpace:
        """Return a game's actions; ValueError if it cannot be made."""

    def own_vector(self, task: TaskOptions, game: str) -> OwnVector | None:
        """Return what a user's own vector of environments is like; none of single environments."""
        return None

    def unseen(self, task: TaskOptions) -> str | None:
        """Return a game that is learned like these and is none of them; none if none is known."""
        return None

    def continuous_actions(self, task: TaskOptions) -> bool:
        """Return whether some game's actions are continuous."""
        return any(self.action_space(task, game).continuous for game in task.resolved_games)

    def discrete_actions(self, task: TaskOptions) -> bool:
        """Return whether some game's actions are discrete."""
        return not all(self.action_space(task, game).continuous for game in task.resolved_games)

    def common_actions(self, task: TaskOptions, *, option: str, instead: str) -> ActionSpace:
        """Return the actions of all games; ValueError, which names both options, if they differ."""
        games: dict[ActionSpace, list[str]] = {}
        for game in task.resolved_games:
            games.setdefault(self.action_space(task, game), []).append(game)
        if len(games) == 1:
            return next(iter(games))
        told = ", ".join(
            f"{space.size} {'continuous numbers' if space.continuous else 'actions'} "
            f"({', '.join(names)})"
            for space, names in sorted(games.items())
        )
        raise ValueError(
            f"{option}: the games must have the same number of actions, and these have {told}; "
            f"take games of one kind, or {instead}"
        )

    def resolve(self, task: T) -> T:
        """Return the options; ValueError if games are mixed that have other actions."""
        if task.mix_games:
            self.common_actions(
                task, option="task.mix_games = true", instead="task.mix_games = false"
            )
        return task

    def domain(self, task: TaskOptions) -> Domain:
        """Return the kind of game, by which an agent's defaults are chosen."""
        return "atari"

    def life_loss_ends(self, task: TaskOptions) -> bool:
        """Return whether learning treats the loss of a life as an end, within an episode."""
        return False

    def make_envs(
        self, task: TaskOptions, game: str, *, seed: int, processes: int = 1
    ) -> GameVector:
        """Make a game's B environments from a seed; the number of `processes` changes no bit."""
        from leap_rl.envs.workers import make_vector

        make = self._slice(task, game)
        return make_vector(make, num_envs=task.num_envs, seed=seed, processes=processes)

    def make_single(self, task: TaskOptions, game: str, *, number: int = 0) -> RestorableEnvs:
        """Make one of the game's environments, for other libraries (`envs.single`).

        Of mixed games it is that of the number. The others are alike but for their seeds.
        """
        return self._slice(task, game)(num_envs=1, first=number if _is_mix(task, game) else 0)

    def _slice(self, task: TaskOptions, game: str) -> Slice:
        if not _is_mix(task, game):
            return self.environments(task, game)
        from leap_rl.envs.mixed import MixedEnvs

        return partial(MixedEnvs, [self.environments(task, one) for one in task.resolved_games])


def _is_mix(task: TaskOptions, game: str) -> bool:
    """Return whether a task plays all games at once; a run that mixes validates single ones."""
    return task.mix_games and game == MIXED


def check_games(kind: str, games: tuple[str, ...], known: tuple[str, ...]) -> tuple[str, ...]:
    """Return the games; pretraining and all are all that are known.

    ValueError: one is not known or comes twice, or there is none.
    """
    if games in (("pretraining",), ("all",)):
        return known
    for game in games:
        if game not in known:
            close = get_close_matches(game, known, n=1)
            hint = f"did you mean {close[0]!r}?" if close else f"such as {known[0]!r}"
            raise ValueError(f"task.games: {game!r} is no game of task.kind = {kind}; {hint}")
    if not games or len(set(games)) < len(games):
        raise ValueError(f"task.games = {list(games)}: name at least one game, each once")
    return games
