"""What a family of tasks is: what it takes from the config and refuses, and how its tasks are made.

Importing one costs no import of torch: each imports what makes its tasks when it is needed.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import fields, replace
from difflib import get_close_matches
from typing import TYPE_CHECKING, ClassVar, Literal

if TYPE_CHECKING:
    from torch import Tensor

    from leap_rl.learners.config import AgentConfig
    from leap_rl.learners.learner import Learner
    from leap_rl.learners.task import Task, TaskSpec
    from leap_rl.networks.parameters import Layout
    from leap_rl.tasks.config import TaskConfig


class Family(ABC):
    """A family of tasks, by default of agents that take agent steps."""

    kind: ClassVar[str]
    """Its name, `task.kind`."""
    options: ClassVar[tuple[str, ...]]
    """Those of `families.OPTIONS` that have an effect on it."""
    ignored_agent_options: ClassVar[tuple[str, ...] | Literal["all"]] = ()
    """Options of the agent that have none."""
    resolved_agent_options: ClassVar[Mapping[str, object]] = {}
    """What `resolve_agent` makes of some of these."""
    spreads_environments: ClassVar[bool] = False
    """Whether `runtime.env_processes` spreads its environments over processes."""
    unit: ClassVar[Literal["agent_steps", "examples"]] = "agent_steps"
    """What a task's budget counts: agent steps, or images that an update learns from."""
    compared_by: ClassVar[str | None] = None
    """What compares its initializations where `leap-rl evaluate` cannot, for want of episodes."""
    differentiable: ClassVar[bool] = False
    """Whether MAML can differentiate through a task's updates."""
    plain_descent: ClassVar[bool] = False
    """Whether its tasks are learned by plain gradient descent, in whose metric eq. 8 is."""
    recordable: ClassVar[bool] = False
    """Whether its agents can be recorded on video."""
    evaluation_games: ClassVar[str | None] = None
    """The pool that an evaluation learns where no games are named."""
    validation_games: ClassVar[tuple[str, ...] | None] = None
    """The games that validate a run where none are named."""

    @abstractmethod
    def resolve_games(self, games: Sequence[str]) -> tuple[str, ...]:
        """Return the games that `task.games` names, pools spelled out.

        Empty as long as it takes the data to know them.

        Raises:
            ValueError: One does not exist, or comes twice, or there is none.
        """

    def imports(self, task: TaskConfig) -> tuple[str, ...]:
        """Return the modules that have to be imported for the games to be known."""
        return ()

    def updates(self, task: TaskConfig) -> int:
        """Return K, the updates in a task's budget."""
        return task.agent_steps // task.agent_steps_per_update

    def with_updates(self, task: TaskConfig, updates: int) -> TaskConfig:
        """Return the tasks with another budget."""
        return replace(task, agent_steps=updates * task.agent_steps_per_update)

    def budget(self, task: TaskConfig) -> int:
        """Return a task's budget, in its unit."""
        return task.agent_steps

    def frames_per_agent_step(self, task: TaskConfig) -> int:
        """Return the frames of an agent step; 0 where there is no emulator."""
        return 0

    def check(self, task: TaskConfig, agent: AgentConfig, env_processes: int) -> None:
        """Raise ValueError for options that have no effect, or do not fit together."""
        without_effect = f"has no effect with task.kind = {self.kind}"
        if env_processes != 1 and not self.spreads_environments:
            raise ValueError(
                f"runtime.env_processes = {env_processes}: {without_effect}; leave it out"
            )
        default, ignored = type(agent)(), self.ignored_agent_options
        for name in [one.name for one in fields(agent)] if ignored == "all" else ignored:
            value = getattr(agent, name)
            if value not in (getattr(default, name), self.resolved_agent_options.get(name)):
                own = [group for group in self.options if hasattr(getattr(task, group), name)]
                way_out = f"set task.{own[0]}.{name}" if own else "leave it out"
                raise ValueError(f"agent.{name} = {value}: {without_effect}; {way_out}")

    def resolve_task(self, task: TaskConfig) -> TaskConfig:
        """Return the config with what data or environments know; ValueError if they lack it."""
        return task

    def resolve_agent(self, tasks: Learner) -> AgentConfig:
        """Return the agents' settings with each `auto` resolved for this machine."""
        from leap_rl.learners.hardware import resolve

        return resolve(tasks.agent)

    def check_processor(self, tasks: Learner) -> None:
        """Raise ValueError for a machine without the device, or the precision's units."""
        from leap_rl.learners.hardware import check_machine

        check_machine(tasks.agent)

    def check_machine(self, tasks: Learner) -> None:
        """Raise ValueError for a machine that cannot make the tasks; trainers call it first.

        It lacks what `check_processor` asks for, or data, or a game.
        """
        self.check_processor(tasks)

    def advise(self, task: TaskConfig, run: str) -> tuple[str, str] | None:
        """Return what to try next with a run's initialization, in words and as a command."""
        return None

    @abstractmethod
    def make(self, tasks: Learner, spec: TaskSpec) -> Task:
        """Make a task."""

    @abstractmethod
    def shared_layout(self, tasks: Learner) -> Layout:
        """Return the names and places of the shared parameters in the flat vector."""

    @abstractmethod
    def random_initialization(self, tasks: Learner, seed: int) -> Tensor:
        """Draw shared parameters, float32 [P], from the stream of `seed`."""


def check_games(kind: str, games: tuple[str, ...], known: tuple[str, ...]) -> tuple[str, ...]:
    """Return the games; ValueError if one is not known or comes twice, or there is none."""
    for game in games:
        if game not in known:
            close = get_close_matches(game, known, n=1)
            hint = f"did you mean {close[0]!r}?" if close else f"such as {known[0]!r}"
            raise ValueError(f"task.games: {game!r} is no game of task.kind = {kind}; {hint}")
    if not games or len(set(games)) < len(games):
        raise ValueError(f"task.games = {list(games)}: name at least one game, each once")
    return games
