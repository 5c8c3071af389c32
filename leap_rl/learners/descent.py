"""What tasks of a fixed number of updates have in common: their counts, points and snapshots.

Dimensions: P flattened shared parameters.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from leap_rl.core.choices import LossDifference
from leap_rl.learners.task import EpisodeEnd, Progress, TaskState
from leap_rl.meta.gradient_path import Point

_PREVIOUS_BATCH_LOSS = "previous_batch_loss"


class DescentTask(ABC):
    """The part of a `Task` that does not depend on what is learned; `updates` is its budget, K."""

    def __init__(
        self, *, updates: int, agent_steps_per_update: int, loss_difference: LossDifference
    ) -> None:
        self._budget = updates
        self._agent_steps_per_update = agent_steps_per_update
        self._evaluates_again = loss_difference == "same_batch"
        self._updates = 0
        self._agent_steps = 0
        self._previous_batch_loss: Tensor | None = None

    @property
    def done(self) -> bool:
        return self._agent_steps >= self.agent_steps_total

    @property
    def agent_steps_total(self) -> int:
        return self._budget * self._agent_steps_per_update

    @property
    def device(self) -> torch.device:
        return torch.device("cpu")

    def start(self, shared: Tensor) -> None:
        self._load_shared(shared)

    def state(self) -> TaskState:
        state = self._own_state() | {"updates": np.array(self._updates)}
        if self._previous_batch_loss is not None:
            state[_PREVIOUS_BATCH_LOSS] = self._previous_batch_loss.cpu().numpy().copy()
        return state

    def restore(self, state: Mapping[str, NDArray[Any]]) -> None:
        self._restore_own(state)
        self._updates = int(state["updates"])
        # Of what has no state of its own of them, each update has as many.
        counted = self._updates * self._agent_steps_per_update
        self._agent_steps = int(state.get("agent_steps", counted))
        loss = state.get(_PREVIOUS_BATCH_LOSS)
        self._previous_batch_loss = None if loss is None else torch.from_numpy(loss.copy())

    def carry_over(self, state: Mapping[str, NDArray[Any]], shared: Tensor) -> None:
        self.restore(state)
        self._load_shared(shared)
        self._updates = self._agent_steps = 0
        self._previous_batch_loss = None

    def close(self) -> None:  # noqa: B027 - most hold nothing
        """Do nothing: it holds nothing outside this process's heap."""

    @abstractmethod
    def _load_shared(self, shared: Tensor) -> None: ...

    @abstractmethod
    def _own_state(self) -> TaskState:
        """Return the state without the counts."""

    @abstractmethod
    def _restore_own(self, state: Mapping[str, NDArray[Any]]) -> None: ...

    def _point(
        self,
        theta: Tensor,
        loss: Tensor,
        grad: Tensor | None,
        *,
        step_length: float | None = None,
    ) -> Point:
        return Point(
            theta=theta,
            loss=loss,
            grad=grad,
            previous_batch_loss=self._previous_batch_loss,
            step_length=step_length,
        )

    def _count_update(
        self, loss_again: Callable[[], Tensor], *, agent_steps: int | None = None
    ) -> None:
        """Count an update that was made; `loss_again` computes its batch's loss now.

        `agent_steps` are those that it learned from, where it may have fewer than others.
        """
        self._updates += 1
        self._agent_steps += self._agent_steps_per_update if agent_steps is None else agent_steps
        if self._evaluates_again:
            self._previous_batch_loss = loss_again()

    def _progress(
        self,
        losses: Mapping[str, float],
        *,
        episodes: Sequence[EpisodeEnd] = (),
        rewards: float | None = None,
    ) -> Progress:
        return Progress(
            updates=self._updates,
            # The last update may have more than are left; these are not counted.
            agent_steps=min(self._agent_steps, self.agent_steps_total),
            losses=losses,
            episodes=episodes,
            rewards=rewards,
        )
