"""The protocol of a learning process: what the training system asks of a task.

A task is one draw from the distribution over learning problems (the paper's τ). It knows nothing of
meta-learning: a trainer hands it a function that sees each point of its gradient path.

    task.start(theta0)
    while not task.done:
        progress = task.advance(path.visit)
    end = task.end_point(with_grad=False)
    path.end(end)

Dimensions: P flattened shared parameters.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias

import torch
from numpy.typing import NDArray
from torch import Tensor

from leap_rl.envs.vector import EpisodeEnd as EpisodeEnd
from leap_rl.meta.gradient_path import Point

TaskState: TypeAlias = dict[str, NDArray[Any]]
"""A task's snapshot: arrays by name."""


Observe: TypeAlias = Callable[[Point], None]
"""Sees each point of the gradient path before an update; a meta path's ``visit`` fits it."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Progress:
    """What one call of `Task.advance` did."""

    updates: int
    agent_steps: int
    """Agent steps of the task so far; where there is no agent, examples that it learned from."""
    losses: Mapping[str, float]
    """The update's losses by name; ``total`` is always there, others may be there now and then. A
    classifier's errors are losses whose names end in ``_error``."""
    episodes: Sequence[EpisodeEnd] = ()
    """Episodes that ended since the last call."""
    rewards: float | None = None
    """Sum of the raw rewards since the last call, over all environments; none where there are
    no rewards."""


@dataclass(frozen=True, kw_only=True, slots=True)
class TaskSpec:
    """Which task to make: all that tells one draw from another."""

    game: str
    seed: int
    """The task's own seed; all of its random streams derive from it."""
    start_index: int = 0
    """Which of its round's starting points it begins at; most rounds have one."""
    validates: bool = False
    """Whether it judges its start instead of contributing to the next one."""

    def plain(self) -> dict[str, Any]:
        """Return the fields as plain values; those that only some tasks have, where they do."""
        special = {"start_index": self.start_index, "validates": self.validates}
        return {"game": self.game, "seed": self.seed} | {k: v for k, v in special.items() if v}


class Task(Protocol):
    """A learning process that starts from shared parameters. Not thread-safe."""

    @property
    def done(self) -> bool:
        """Whether the budget is used up."""

    @property
    def agent_steps_total(self) -> int:
        """The task's budget in agent steps, or in examples where there is no agent."""

    @property
    def device(self) -> torch.device:
        """Where the points of its gradient path lie."""

    def start(self, shared: Tensor) -> None:
        """Copy the initialization, float32 [P], and draw the task's own parameters."""

    def advance(self, observe: Observe) -> Progress:
        """Make one update; ``observe`` is called once, between its gradient and its step.

        A learner that makes several updates of a batch calls it before each of them.
        """

    def end_point(self, *, with_grad: bool) -> Point:
        """Return the path's end: one more batch at the last parameters, not stepped on.

        Each call has another batch, but for tasks that differentiate their end by their start.
        """

    def state(self) -> TaskState:
        """Return all that the future depends on, between two updates; a pure read, all copies."""

    def restore(self, state: Mapping[str, NDArray[Any]]) -> None:
        """Continue from a state, in a freshly made task, in place of `start`.

        ValueError: the state is of another task, or of one made otherwise.
        """

    def carry_over(self, state: Mapping[str, NDArray[Any]], shared: Tensor) -> None:
        """Begin a round with the agent of an earlier one, in place of `start`.

        All is restored from ``state``, see `restore`, but the shared parameters, which are
        set to ``shared``, float32 [P], and the counts of updates and agent steps, which begin at 0.
        Batches of examples are drawn from the new task's seed.
        """

    def named_parameters(self) -> dict[str, Tensor]:
        """Return copies of all that an agent acts with by name: parameters, also its own ones."""

    def close(self) -> None:
        """Free what the task holds outside this process's heap, such as emulators."""


class TaskFactory(Protocol):
    """Makes tasks; small and picklable, so that it can travel to the trainers."""

    def restores(self, game: str) -> bool:
        """Return whether a game's tasks can be restored from a snapshot.

        Otherwise one starts again after a crash.
        """

    def __call__(self, spec: TaskSpec) -> Task:
        """Make the task of ``spec``; `Task.start` comes next."""

    def check_machine(self) -> None:
        """Raise ValueError for a machine that cannot compute the tasks as they were meant."""
