"""A game learned by somebody's own loop, as a task: one whole learning, watched on its way.

P: flattened shared parameters.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any, Final

import torch
from numpy.typing import NDArray
from torch import Tensor

from leap_rl.core.seeding import Purpose, derive_seed
from leap_rl.learners.game_learner import GameLearner
from leap_rl.learners.stepwise import Stepwise
from leap_rl.learners.task import Observe, TaskSpec, TaskState
from leap_rl.meta.gradient_path import Point

SEEDS: Final = 2**31
"""A loop's seed lies below it: numpy's global stream takes no larger one."""


class WatchedTask(ABC):
    """Runs a loop from pause to pause, whose optimizers' hooks show each update.

    It is safe at its start and at its end alone, as nothing is known here of what the loop holds.
    The loop draws from the global random streams, which are seeded for it: a task is a function of
    its seed and its start as long as nothing else draws from them.
    """

    def __init__(self, learner: GameLearner, spec: TaskSpec) -> None:
        self._name = learner.agent.algorithm
        self._budget = learner.task.agent_steps
        self._seed = derive_seed(spec.seed, Purpose.DATA) % SEEDS
        self._learning = Stepwise(self._learn)
        self._observe: Observe | None = None
        self._losses: list[float] = []  # of updates since they were last taken
        self._last_loss = 0.0
        self._updates = 0

    @abstractmethod
    def _learn(self) -> object:
        """Learn the whole task, with a `Watch` of this object; in a thread of its own."""

    @abstractmethod
    def _theta(self) -> Tensor:
        """Return the shared parameters as they are, float32 [P]."""

    @property
    def done(self) -> bool:
        return self._learning.ended

    @property
    def agent_steps_total(self) -> int:
        return self._budget

    @property
    def device(self) -> torch.device:
        return torch.device("cpu")

    def end_point(self, *, with_grad: bool) -> Point:
        """Return the parameters at the end with the last update's loss: no batch is left."""
        assert not with_grad, "methods that need it are refused"
        return Point(theta=self._theta(), loss=self._last_loss)

    def state(self) -> TaskState:
        raise AssertionError("not restorable")

    def restore(self, state: Mapping[str, NDArray[Any]]) -> None:
        raise ValueError(f"tasks of agent.algorithm = {self._name} have no snapshots")

    def carry_over(self, state: Mapping[str, NDArray[Any]], shared: Tensor) -> None:
        raise ValueError(
            f"agents of agent.algorithm = {self._name} cannot be carried over to another round"
        )

    def close(self) -> None:
        self._learning.stop()

    def observe(self, theta: Tensor, loss: Tensor | float, grad: Tensor | None = None) -> None:
        """Take in a point of the path before its update; called by the watch."""
        assert self._observe is not None
        loss = loss.detach() if isinstance(loss, Tensor) else loss
        self._observe(Point(theta=theta, loss=loss, grad=grad))
        self._last_loss = float(loss)
        self._losses.append(self._last_loss)
        self._updates += 1

    def finish(  # noqa: B027 - a watch calls it
        self, theta: Tensor, loss: Tensor | float, grad: Tensor | None = None
    ) -> None:
        """Leave the path open: its trainer ends it."""

    def _mean_loss(self) -> float:
        """Return the mean loss of the updates since this was last called; the last one if none."""
        losses, self._losses = self._losses, []
        return sum(losses) / len(losses) if losses else self._last_loss
