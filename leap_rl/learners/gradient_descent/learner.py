"""Gradient descent on bowls as a learner."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

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

    def __call__(self, spec: TaskSpec) -> Task:
        from leap_rl.learners.gradient_descent.task import QuadraticTask

        lr = self.resolved_agent().lr
        assert lr != "auto"
        return QuadraticTask(spec, lr=lr, **self.descent_arguments())

    def shared_layout(self) -> Layout:
        from leap_rl.learners.gradient_descent.task import DIMENSION
        from leap_rl.networks.parameters import Layout, Leaf

        return Layout((Leaf("theta", (DIMENSION,), 0),), DIMENSION)

    def random_initialization(self, seed: int) -> Tensor:
        import torch

        from leap_rl.learners.gradient_descent.task import DIMENSION

        return torch.randn(DIMENSION, generator=torch.Generator().manual_seed(seed))
