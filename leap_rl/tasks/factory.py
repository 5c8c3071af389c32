"""Makes the tasks that a config names. Small and picklable: it travels to the trainers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from torch import Tensor

from leap_rl.core.choices import LossDifference
from leap_rl.envs.vector import GameVector
from leap_rl.learners.config import AgentConfig
from leap_rl.learners.task import Task, TaskSpec
from leap_rl.networks.parameters import Layout
from leap_rl.tasks.config import TaskConfig
from leap_rl.tasks.played import PlayedFamily


@dataclass(frozen=True, kw_only=True)
class Learner:
    """The task factory of a config."""

    task: TaskConfig
    agent: AgentConfig
    loss_difference: LossDifference = "next_batch"
    env_processes: int = 1
    """Processes that a task's environments are spread over; changes no bit."""
    second_order: bool = False
    """Whether a task's end is differentiated by its start, through all updates."""

    def __call__(self, spec: TaskSpec) -> Task:
        """Make the task of ``spec``."""
        return self.task.family.make(self, spec)

    def check_machine(self) -> None:
        """Raise ValueError for a machine that cannot compute the tasks as they were meant."""
        self.task.family.check_machine(self)

    def shared_layout(self) -> Layout:
        """Return the names and places of the shared parameters in the flat vector."""
        return self.task.family.shared_layout(self)

    def random_initialization(self, seed: int) -> Tensor:
        """Draw shared parameters, float32 [P], from the stream of ``seed``."""
        return self.task.family.random_initialization(self, seed)

    @property
    def observation_shape(self) -> tuple[int, ...]:
        """What the encoder sees: height, width and channels of pixels, or a vector's length."""
        return self._played.observation_shape(self.task)

    def make_envs(self, game: str) -> Callable[[int], GameVector]:
        """Return what makes a game's B environments from a seed."""
        return self._played.make_envs(self, game)

    @property
    def _played(self) -> PlayedFamily:
        family = self.task.family
        assert isinstance(family, PlayedFamily), f"nobody plays task.kind = {family.kind}"
        return family
