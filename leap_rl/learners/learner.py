"""A learner: who learns. It declares what it can do, and makes the tasks of a run.

Importing one imports no torch: each imports what makes its tasks when it is needed.

P: flattened shared parameters.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, Any, ClassVar, Final

from leap_rl.core.choices import LossDifference
from leap_rl.learners.config import AgentConfig
from leap_rl.learners.defaults import PAPER, Settings, auto_options, resolved
from leap_rl.tasks.config import TaskConfig
from leap_rl.tasks.suite import Suite

if TYPE_CHECKING:
    from torch import Tensor

    from leap_rl.learners.task import Task, TaskSpec
    from leap_rl.networks.parameters import Layout

OPTIONS_OF: Final[Mapping[str, tuple[str, ...]]] = {
    "a2c": ("rmsprop_alpha", "rmsprop_eps", "rmsprop_start"),
    "rllib:PPO": ("rllib",),
    "sb3": ("sb3",),
    "classifier": ("classifier",),
}
"""Options that are one algorithm's alone: where another one is named, they are left out."""


@dataclass(frozen=True, kw_only=True)
class Learner(ABC):
    """An algorithm for the tasks of a run; a picklable `TaskFactory`, which trainers call."""

    task: TaskConfig
    agent: AgentConfig
    loss_difference: LossDifference = "next_batch"
    env_processes: int = 1
    """Processes that a task's environments are spread over; changes no bit."""
    second_order: bool = False
    """Whether a task's end is differentiated by its start, through all updates."""

    name: ClassVar[str]
    """Its name, `agent.algorithm`."""
    learns: ClassVar[type[Suite]]
    """The suites whose tasks it can learn."""
    options: ClassVar[tuple[str, ...]]
    """The fields of `AgentConfig`, besides `algorithm`, that have an effect."""
    restorable: ClassVar[bool] = True
    """Whether a task can be restored from a snapshot, where its environments can be. Otherwise a
    task whose trainer died is learned again from its start."""
    carries_over: ClassVar[bool] = True
    """Whether an agent can be carried over to another round, heads and all."""
    repeats_batches: ClassVar[bool] = True
    """Whether it computes a batch's loss when asked: again after its update, and of one more batch
    at a task's end, with the gradient."""
    continuous_actions: ClassVar[bool] = True
    """Whether it learns games whose actions are continuous."""
    discrete_actions: ClassVar[bool] = True
    """Whether it learns games whose actions are discrete."""
    spreads_environments: ClassVar[bool] = False
    """Whether `runtime.env_processes` spreads its environments over processes."""
    plain_descent: ClassVar[bool] = False
    """Whether it learns by plain gradient descent, in whose metric eq. 8 is."""
    differentiable: ClassVar[bool] = False
    """Whether MAML can differentiate through a task's updates."""
    shares_encoder: ClassVar[bool] = False
    """Whether what the tasks share is an encoder of observations."""
    own_batches: ClassVar[bool] = False
    """Whether its batches are not of `task.unroll_length`; it checks the budget by itself."""
    saves_player: ClassVar[bool] = False
    """Whether a trained agent's file is a policy that `leap-rl play` can act with."""

    @classmethod
    def check(cls, task: TaskConfig, agent: AgentConfig, env_processes: int) -> None:
        """Raise ValueError for tasks that it cannot learn, and for options without effect."""
        suite = task.suite
        if not isinstance(suite, cls.learns):
            raise ValueError(
                f"agent.algorithm = {cls.called(agent)}: learns {cls.learns.subject}, and "
                f"task.kind = {task.kind} has {suite.subject}; take agent.algorithm = "
                f"{suite.learned_by}"
            )
        if env_processes != 1:
            spreads = suite.spreads_environments
            if not (spreads and cls.spreads_environments):
                why = f"task.kind = {task.kind}"
                if spreads:
                    why = f"agent.algorithm = {cls.called(agent)}"
                raise ValueError(
                    f"runtime.env_processes = {env_processes}: has no effect with {why}; leave it "
                    "out"
                )
        default = AgentConfig()
        for name in cls.ignored():
            if (value := getattr(agent, name)) != getattr(default, name):
                own = [group for group in cls.options if hasattr(getattr(agent, group), name)]
                way_out = f"set agent.{own[0]}.{name}" if own else "leave it out"
                raise ValueError(
                    f"agent.{name} = {value}: has no effect with agent.algorithm = "
                    f"{cls.called(agent)}; {way_out}"
                )

    @classmethod
    def called(cls, agent: AgentConfig) -> str:
        """Return its name as the options have it, which may be a module and what is in it."""
        return cls.name if agent.algorithm == "auto" else agent.algorithm

    @classmethod
    def own_unroll_length(cls, agent: Mapping[str, Any]) -> int | None:
        """Return the agent steps of each environment between updates, if not task.unroll_length.

        Args:
            agent: Options of `agent` that are given, by name.

        Raises:
            ValueError: They are not a number, or the library that has them is missing.
        """
        return None

    @classmethod
    def ignored(cls) -> tuple[str, ...]:
        """Return the fields of `AgentConfig` that have no effect."""
        names = (one.name for one in fields(AgentConfig))
        return tuple(name for name in names if name not in ("algorithm", *cls.options))

    @classmethod
    def without_others(cls, agent: AgentConfig) -> AgentConfig:
        """Leave other algorithms' own options out: a config's algorithm is changed by one word."""
        default = AgentConfig()
        others = {
            name: getattr(default, name)
            for names in OPTIONS_OF.values()
            for name in names
            if name not in cls.options
        }
        return replace(agent, **others)

    def resolved_agent(self) -> AgentConfig:
        """Return the agents' options with nothing left to this machine or to the games.

        ValueError: it cannot learn these games.
        """
        named = self.agent.algorithm != "auto"
        agent = self.agent if named else replace(self.agent, algorithm=self.name)
        if not auto_options(agent):
            return agent
        return resolved(agent, self.defaults(), options=self.options)

    def defaults(self) -> Settings:
        """Return the values of the options of `Settings` that are `auto`."""
        return PAPER

    def restores(self, game: str) -> bool:
        """Return whether a game's tasks can be restored from a snapshot."""
        return self.restorable

    def check_processor(self) -> None:  # noqa: B027 - some compute on any
        """Raise ValueError for a machine without the device, or the precision's units."""

    def check_machine(self) -> None:
        """Raise ValueError for a machine that lacks what tasks need; trainers call it first."""
        self.task.suite.check_machine(self.task)
        self.check_processor()

    @abstractmethod
    def __call__(self, spec: TaskSpec) -> Task:
        """Make the task of ``spec``; `Task.start` comes next."""

    @abstractmethod
    def shared_layout(self) -> Layout:
        """Return the names and places of the shared parameters in the flat vector."""

    @abstractmethod
    def random_initialization(self, seed: int) -> Tensor:
        """Draw shared parameters, float32 [P], from the stream of `seed`."""

    def descent_arguments(self) -> dict[str, Any]:
        """Return what a `DescentTask` is made with."""
        return {
            "updates": self.task.updates,
            "agent_steps_per_update": self.task.agent_steps_per_update,
            "loss_difference": self.loss_difference,
        }
