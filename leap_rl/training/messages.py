"""The messages between trainers and the parameter server.

Trainers pull work; the server is the single source of truth. Every call may arrive twice, late
or never, so each message names its run, slot and attempt, and repeating one changes nothing:

    claim    -> Assignment | Wait | Finished
    stream   -> Continue | Abandon           the sum so far, sent now and then, not waited for
    complete -> Counted | Abandon            the whole sum; the answer carries the next work
    diverged -> Abandon                      the task's numbers are no longer finite

A worked example. Meta-step 7 opens with 16 slots. Trainer ``trainer-2`` claims (number 31) and is
assigned slot 4 for the first time: ``Ticket(round=7, slot=4, attempt=1)``. It streams the sum of
its first 120 segments with ``n=120``, then of 260 with ``n=260``; a stream that arrives twice
replaces a sum by the same sum. It completes with ``n=31_250`` and claim number 32; if the answer
is lost it sends the same message again, is told Counted again, and gets the same next assignment,
since number 32 has been answered before.

Now and then a stream carries a snapshot: the task's after the same n segments. Say that of
n=20_000 was answered Continue(durable_n=20_000) when ``trainer-2`` died at n=21_300. Slot 4 rolls
back to n=20_000, and ``Ticket(round=7, slot=4, attempt=2)`` goes out with that snapshot: its
trainer repeats 1,300 segments and ends with the same sum.

Dimensions: P flattened shared parameters, E episodes, R points of a learning curve.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

FloatVector: TypeAlias = NDArray[np.float32]
"""A float32 vector; read-only on the receiving side."""

Bytes: TypeAlias = NDArray[np.uint8]
"""A file's contents, uint8 [bytes]: an array, which crosses processes without being copied."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Ticket:
    """The run, slot and attempt of a running task's message."""

    fingerprint: str
    """SHA-256 of the run's defining config: a message of another run is refused."""
    round: int
    """The meta-step (or other round), which is also the version of the initialization."""
    slot: int
    """The place in the round's batch."""
    attempt: int
    """Attempt number at filling the slot, from 1; older attempts are abandoned."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Claim:
    """A trainer asks for work."""

    trainer: str
    """The trainer's name, the same when it is started from scratch."""
    incarnation: int
    """Counts the starts of the trainer, from 1: a new one frees what the old one held."""
    number: int
    """Counts the claims of an incarnation: the same number gets the same answer."""
    node: str | None = None
    """The machine on which it lends its core while it has no task, and borrows others' while it has
    one; none where it does neither."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Assignment:
    """Work: one task to train from the initialization."""

    ticket: Ticket
    game: str
    task_seed: int
    theta0: FloatVector
    """The initialization, [P]."""
    save_agent: bool
    """Whether the trained agent is to come back with the sum."""
    durable_n: int = 0
    """Segments behind ``snapshot``; 0 to start at the initialization."""
    snapshot: Bytes | None = None
    """A snapshot to resume from, or none."""
    carried_agent: Bytes | None = None
    """The agent of the game's last round, for methods that carry agents over; none for its first
    round, and where there is a snapshot."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Wait:
    """No slot is free now; ask again."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Finished:
    """The run has no more work."""


Work: TypeAlias = Assignment | Wait | Finished


@dataclass(frozen=True, kw_only=True, slots=True)
class TaskProgress:
    """How far a running task is; for display only."""

    agent_steps: int = 0
    agent_steps_per_s: float = 0.0
    mean_return: float | None = None
    """Mean raw return of the last episodes; None before the first has ended."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Stream:
    """A task's sum so far."""

    ticket: Ticket
    n: int
    """Segments in the sum; a smaller one than the newest seen is out of date."""
    contribution: FloatVector
    """The sum over the first ``n`` segments, [P]."""
    progress: TaskProgress
    snapshot: Bytes | None = None
    """The task's snapshot after ``n`` segments, or none."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Episodes:
    """Episodes that ended in a task, as columns."""

    agent_steps: NDArray[np.int64]
    """Agent steps of the task, over its environments, when the episode ended, [E]."""
    returns: NDArray[np.float64]
    """Raw returns, [E]."""
    lengths: NDArray[np.int64]
    """Lengths in agent steps, [E]."""


CURVE_POINTS = 100
"""Intervals of a learning curve: equal parts of the budget, whatever its size; fewer where updates
are longer."""


@dataclass(frozen=True, kw_only=True, slots=True)
class CurvePoint:
    """One interval of a learning curve."""

    agent_steps: int
    """The interval's end."""
    losses: Mapping[str, float]
    """Mean losses of the interval's updates."""
    episodes: int
    """Episodes that ended in it."""
    return_sum: float
    """Sum of their raw returns."""
    agent_steps_per_s: float
    rewards: float | None = None
    """Sum of the raw rewards earned in it, in episodes that are still under way too; none where
    there are no rewards."""


@dataclass(frozen=True, kw_only=True, slots=True)
class TaskRecord:
    """What a finished task reports besides its sum."""

    trainer: str
    processor: str
    """The kind of processor that trained it: bits are promised per kind."""
    updates: int
    agent_steps: int
    losses: Mapping[str, float] = field(default_factory=dict)
    """Mean losses over all updates."""
    path: Mapping[str, float] = field(default_factory=dict)
    """The gradient path's metrics, such as its energy."""
    curve: tuple[CurvePoint, ...] = ()
    working_s: float = 0.0
    waiting_s: float = 0.0
    """Time the trainer waited for this work."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Complete:
    """A task's whole sum."""

    ticket: Ticket
    n: int
    """Segments in the sum: all of them."""
    contribution: FloatVector
    """The sum over all segments, [P]."""
    record: TaskRecord
    episodes: Episodes
    claim: Claim
    """Asks for the next work along with it."""
    carried_agent: Bytes | None = None
    """The task's snapshot at its end, for methods that carry agents over."""
    agent: Mapping[str, NDArray[np.float32]] = field(default_factory=dict)
    """The trained agent's parameters by name, where they were asked for."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Diverged:
    """A task's numbers are no longer finite; the server decides on its slot."""

    ticket: Ticket
    agent_steps: int
    reason: str
    """What is not finite, and after how many updates."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Continue:
    """The stream was taken in."""

    durable_n: int
    """Segments that a crash cannot lose any more."""
    pace: float = 1.0
    """The factor by which streams and snapshots are to be rarer than asked for; at least 1."""
    env_processes: int | None = None
    """Processes that the task's environments may be spread over now; none for as many as so far."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Counted:
    """The sum counts, once, and is on disk."""

    next: Work


@dataclass(frozen=True, kw_only=True, slots=True)
class Abandon:
    """The slot is another attempt's by now, or complete; drop the task and claim again."""

    reason: str
