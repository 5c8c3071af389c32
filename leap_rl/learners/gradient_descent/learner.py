"""Gradient descent on bowls as a learner."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from leap_rl.learners.config import AgentConfig
from leap_rl.learners.learner import Learner
from leap_rl.tasks.suites import QuadraticSuite

if TYPE_CHECKING:
    from torch import Tensor

    from leap_rl.learners.task import Task, TaskSpec
    from leap_rl.networks.parameters import Layout


@dataclass(frozen=True, kw_only=True)
class GradientDescent(Learner):
    """Descends bowls with the rate `agent.lr`."""

    name = "gradient_descent"
    learns = QuadraticSuite
    options = ("lr",)
    plain_descent = True

    def resolved_agent(self) -> AgentConfig:
        return replace(self.agent, algorithm=self.name)

    def __call__(self, spec: TaskSpec) -> Task:
        from leap_rl.learners.gradient_descent.task import QuadraticTask

        return QuadraticTask(spec, lr=self.agent.lr, **self.descent_arguments())

    def shared_layout(self) -> Layout:
        from leap_rl.learners.gradient_descent.task import shared_layout

        return shared_layout()

    def random_initialization(self, seed: int) -> Tensor:
        from leap_rl.learners.gradient_descent.task import random_initialization

        return random_initialization(seed)
