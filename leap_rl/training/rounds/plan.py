"""The plan of a run's rounds.

A round is a batch of slots served together. The server fills every slot exactly once; the plan
says which tasks fill them, what they start from, and what closing the round does: average and step
(``meta_training.py``), or make curves (``evaluation.py``).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeAlias

from leap_rl.learners.task import TaskSpec
from leap_rl.storage.run_folder import RunFolder
from leap_rl.tracking.metrics import Axis
from leap_rl.training.messages import Bytes, Episodes, FloatVector, TaskRecord


@dataclass(frozen=True, kw_only=True, slots=True)
class FilledSlot:
    """A slot whose task is complete."""

    spec: TaskSpec
    attempt: int
    """The attempt that completed it."""
    restarts: int = 0
    """How often the task diverged and was started again with another seed."""
    cut_off: bool = False
    """Whether the round closed before the task was complete: the rest is of its part so far."""
    contribution: FloatVector
    """The sum over all of the task's segments, [P]."""
    record: TaskRecord
    episodes: Episodes
    carried_agent: Bytes | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class DroppedSlot:
    """A slot whose task is left out of its round."""

    spec: TaskSpec
    attempt: int
    restarts: int = 0
    reason: str
    agent_steps: int
    """Of its task, up to its end."""


@dataclass(frozen=True, kw_only=True, slots=True)
class FilledRound:
    """A round whose slots are all complete; they are in slot order."""

    number: int
    slots: Sequence[FilledSlot]
    """At least one."""
    dropped: Sequence[DroppedSlot] = ()
    elapsed_s: float
    """Wall clock, since the round was opened."""
    trainers: int = 0
    """Trainers that asked for its tasks; 0 if that is not known."""


@dataclass(frozen=True, kw_only=True, slots=True)
class LoggedRow:
    """A row for the trackers, with the axis it belongs to."""

    axis: Axis
    values: Mapping[str, float | int]


@dataclass(frozen=True, kw_only=True, slots=True)
class ClosedRound:
    """What closing a round leaves on disk."""

    rows: Sequence[LoggedRow]
    files: Mapping[str, bytes] = field(default_factory=dict)
    """The checkpoint's files by name."""
    state: Mapping[str, Any] = field(default_factory=dict)
    """Entries of the checkpoint's state.json."""
    best: int | None = None
    """The checkpoint that did best in validation so far, if any did."""


class RoundPlan(Protocol):
    """The rounds of a run. The server calls one method at a time."""

    @property
    def rounds(self) -> int:
        """How many rounds the run has."""

    @property
    def saves_agents(self) -> bool:
        """Whether trained agents are to be saved."""

    def theta0(self, start_index: int = 0) -> FloatVector:
        """Return a starting point of the open round, [P]; the same array until it closes."""

    def open(self, round_number: int) -> Sequence[TaskSpec]:
        """Return the tasks of a round, in slot order."""

    def close(self, filled: FilledRound) -> ClosedRound:
        """Close a round.

        Raises:
            RunFailedError: The run cannot continue from them.
        """


RoundPlanFactory: TypeAlias = Callable[[RunFolder], RoundPlan]
"""Restores a run's plan from its folder's checkpoint; small and picklable.

Raises a RunFolderError if the checkpoint is missing or damaged.
"""
