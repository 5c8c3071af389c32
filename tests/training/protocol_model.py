"""A run whose every number is a pure function of round, slot and n, and a disk that fails.

The honest world that ``test_protocol.py`` checks the parameter server against: what an undisturbed
run would leave, trainers that may die and come back, and the machine's disk.
"""

from __future__ import annotations

import errno
import os
import shutil
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache
from types import ModuleType, SimpleNamespace
from typing import Any
from unittest import mock

import numpy as np

from leap_rl.learners.task import TaskSpec
from leap_rl.storage import durable_files, safe_open
from leap_rl.storage.run_folder import RunFolder
from leap_rl.training import messages
from leap_rl.training.rounds.plan import ClosedRound, FilledRound, FilledSlot, LoggedRow
from tests.training.fakes import SIZE

ROUNDS = 5
BATCH = 2

Message = messages.Claim | messages.Stream | messages.Complete
Answer = messages.Work | messages.Continue | messages.Counted | messages.Abandon


# -- what is computed -----------------------------------------------------------------------------


def segments(round_number: int, slot: int) -> int:
    """How many segments a task has."""
    return 2 + (round_number + slot) % 3


def total(round_number: int, slot: int, n: int) -> messages.FloatVector:
    """The sum of a task's first n segments: no two are alike, and their sum knows its order."""
    seed = 1 + n + 10 * slot + 100 * round_number
    return np.sin(seed * np.arange(1, SIZE + 1)).astype(np.float32)


def snapshot(round_number: int, slot: int, n: int) -> messages.Bytes:
    return np.frombuffer(f"{round_number} {slot} {n}".encode(), dtype=np.uint8)


def episodes(round_number: int, slot: int) -> messages.Episodes:
    count = 1 + slot
    return messages.Episodes(
        agent_steps=np.arange(1, count + 1, dtype=np.int64) + 10 * round_number,
        returns=np.arange(count) + 0.5 * slot,
        lengths=np.full(count, 7 + round_number, dtype=np.int64),
    )


def record(trainer: str, round_number: int, slot: int) -> messages.TaskRecord:
    return messages.TaskRecord(
        trainer=trainer,
        processor="test",
        updates=segments(round_number, slot),
        agent_steps=10 * segments(round_number, slot),
    )


class Averaging:
    """Averages and steps with momentum: closing a round twice, or on other sums, shows for good."""

    saves_agents = False
    rounds = ROUNDS

    def __init__(
        self, theta: messages.FloatVector, velocity: messages.FloatVector, episodes: int
    ) -> None:
        self._theta = theta
        self._velocity = velocity
        self._episodes = episodes

    @classmethod
    def first(cls) -> Averaging:
        return cls(np.zeros(SIZE, np.float32), np.zeros(SIZE, np.float32), 0)

    @classmethod
    def restored(cls, folder: RunFolder) -> Averaging:
        newest = folder.latest()
        assert newest is not None
        files, state = folder.read_checkpoint(newest)
        theta, velocity = (np.frombuffer(files[name], np.float32) for name in ("theta", "velocity"))
        return cls(theta, velocity, state["episodes"])

    def files(self) -> dict[str, bytes]:
        return {"theta": self._theta.tobytes(), "velocity": self._velocity.tobytes()}

    def state(self) -> dict[str, int]:
        return {"episodes": self._episodes}

    def theta0(self, start_index: int = 0) -> messages.FloatVector:
        return self._theta

    def open(self, round_number: int) -> list[TaskSpec]:
        return [TaskSpec(game=f"game_{i}", seed=100 * round_number + i) for i in range(BATCH)]

    def close(self, filled: FilledRound) -> ClosedRound:
        mean = sum((slot.contribution for slot in filled.slots), np.zeros(SIZE, np.float32)) / BATCH
        self._velocity = (0.5 * self._velocity + mean).astype(np.float32)
        self._theta = self._theta - self._velocity
        self._episodes += sum(len(slot.episodes.returns) for slot in filled.slots)
        values = {
            "meta_step": filled.number,
            "episodes": self._episodes,
            "x": float(self._theta[0]),
        }
        row = LoggedRow(axis="meta_step", values=values)
        return ClosedRound(rows=[row], files=self.files(), state=self.state())


@dataclass(frozen=True)
class RoundResult:
    """What an undisturbed run's round starts from and leaves."""

    theta0: messages.FloatVector
    specs: list[TaskSpec]
    files: dict[str, bytes]
    state: dict[str, int]
    rows: list[dict[str, Any]]
    curves: dict[str, list[Any]]


@cache
def undisturbed() -> list[RoundResult]:
    """The run's rounds, by a plain loop."""
    plan, results = Averaging.first(), []
    for number in range(ROUNDS):
        theta0, specs = plan.theta0(), plan.open(number)
        filled = [
            FilledSlot(
                spec=spec,
                attempt=1,
                contribution=total(number, index, segments(number, index)),
                record=record("a", number, index),
                episodes=episodes(number, index),
            )
            for index, spec in enumerate(specs)
        ]
        closed = plan.close(FilledRound(number=number, slots=filled, elapsed_s=0.0))
        ended = [
            (index, steps, value, length)
            for index, slot in enumerate(filled)
            for steps, value, length in zip(
                slot.episodes.agent_steps.tolist(),
                slot.episodes.returns.tolist(),
                slot.episodes.lengths.tolist(),
                strict=True,
            )
        ]
        results.append(
            RoundResult(
                theta0=theta0,
                specs=specs,
                files=dict(closed.files),
                state=dict(closed.state),
                rows=[{"axis": row.axis, "values": dict(row.values)} for row in closed.rows],
                curves={
                    "meta_step": [number] * len(ended),
                    "slot": [index for index, *_ in ended],
                    "game": [specs[index].game for index, *_ in ended],
                    "agent_steps": [steps for _, steps, _, _ in ended],
                    "episode_return": [value for _, _, value, _ in ended],
                    "length": [length for *_, length in ended],
                },
            )
        )
    return results


# -- who computes it ------------------------------------------------------------------------------


@dataclass
class Life:
    """One life of a trainer. It may end without a word, or go on after it is taken for dead."""

    name: str
    incarnation: int
    number: int = 0
    work: messages.Assignment | None = None
    n: int = 0
    """Segments that its task has done."""
    unanswered: messages.Claim | messages.Complete | None = None
    """What it sends again until it hears an answer."""
    over: bool = False

    @property
    def trains(self) -> bool:
        return not self.over and self.work is not None and self.unanswered is None

    def advance(self, updates: int, *, snapshots: bool) -> Message:
        """Train a little, and return what is sent then."""
        if self.unanswered is not None:
            return self.unanswered
        if self.work is None:
            self.unanswered = self._next_claim()
            return self.unanswered
        ticket = self.work.ticket
        if updates > 0 and self.n == segments(ticket.round, ticket.slot):
            self.unanswered = self._complete(ticket)
            return self.unanswered
        self.n = min(self.n + updates, segments(ticket.round, ticket.slot))
        return messages.Stream(
            ticket=ticket,
            n=self.n,
            contribution=total(ticket.round, ticket.slot, self.n),
            progress=messages.TaskProgress(agent_steps=self.n, agent_steps_per_s=1.0),
            snapshot=snapshot(ticket.round, ticket.slot, self.n) if snapshots and self.n else None,
        )

    def hear(self, message: Message, answer: Answer) -> None:
        """Obey an answer, if it is still waited for."""
        if self.over:
            return
        if isinstance(message, messages.Stream):
            held = self.work is not None and self.work.ticket == message.ticket
            if held and self.unanswered is None and isinstance(answer, messages.Abandon):
                self.work = None
            return
        if message is not self.unanswered:
            return
        self.unanswered, self.work = None, None
        work = answer.next if isinstance(answer, messages.Counted) else answer
        if isinstance(work, messages.Assignment):
            self.work, self.n = work, work.durable_n
        elif isinstance(work, messages.Finished):
            self.over = True

    def _next_claim(self) -> messages.Claim:
        self.number += 1
        return messages.Claim(trainer=self.name, incarnation=self.incarnation, number=self.number)

    def _complete(self, ticket: messages.Ticket) -> messages.Complete:
        return messages.Complete(
            ticket=ticket,
            n=self.n,
            contribution=total(ticket.round, ticket.slot, self.n),
            record=record(self.name, ticket.round, ticket.slot),
            episodes=episodes(ticket.round, ticket.slot),
            claim=self._next_claim(),
        )


# -- what it is kept on ---------------------------------------------------------------------------


class DiedError(Exception):
    """The process is gone; whatever it had in memory is, too."""


@dataclass
class Disk:
    """Lets a change on disk fail, or the process die before it or halfway through it."""

    faults: list[tuple[str, int]] = field(default_factory=list)
    """What is to come, "die" or "full", each with how many changes go well before it."""

    def change(self, *, may_be_full: bool = True, halfway: Callable[[], Any] | None = None) -> None:
        """Called before each change."""
        if not self.faults:
            return
        kind, left = self.faults[0]
        if kind == "full" and not may_be_full:
            return
        if left > 0:
            self.faults[0] = (kind, left - 1)
            return
        self.faults.pop(0)
        if halfway is not None:
            halfway()
        if kind == "die":
            raise DiedError
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    @contextmanager
    def installed(self) -> Iterator[None]:
        """Put it under the run folder's writes, which then also sync nothing: nobody pulls a plug.

        Removing never fails for want of room.
        """

        def replace(source: str, target: str, **folders: int) -> None:
            self.change()
            os.replace(source, target, **folders)

        def make(name: str, **folder: int) -> None:
            if not _is_there(name, **folder):
                self.change()
            os.mkdir(name, **folder)

        def unlink(name: str, *, dir_fd: int) -> None:
            if name.endswith(".tmp") and isinstance(sys.exc_info()[1], DiedError):
                return  # who is dead tidies nothing up
            if _is_there(name, dir_fd=dir_fd):
                self.change(may_be_full=False)
            os.unlink(name, dir_fd=dir_fd)

        def remove_tree(name: str, *, dir_fd: int, ignore_errors: bool = False) -> None:
            def half() -> None:
                folder = os.open(name, os.O_RDONLY, dir_fd=dir_fd)
                for entry in sorted(os.listdir(folder))[::2]:
                    os.unlink(entry, dir_fd=folder)
                os.close(folder)

            if name.endswith(".tmp") and isinstance(sys.exc_info()[1], DiedError):
                return
            if _is_there(name, dir_fd=dir_fd):
                self.change(may_be_full=False, halfway=half)
            shutil.rmtree(name, dir_fd=dir_fd, ignore_errors=ignore_errors)

        files = _Changed(
            os,
            replace=replace,
            rename=replace,
            mkdir=make,
            unlink=unlink,
            fsync=lambda descriptor: None,
        )
        with (
            mock.patch.object(durable_files, "open", self._opened, create=True),
            mock.patch.object(durable_files, "os", files),
            mock.patch.object(durable_files, "shutil", SimpleNamespace(rmtree=remove_tree)),
            mock.patch.object(safe_open, "os", files),
        ):
            yield

    @contextmanager
    def _opened(self, descriptor: int, mode: str) -> Iterator[SimpleNamespace]:
        with open(descriptor, mode) as file:

            def write(data: bytes) -> None:
                self.change(halfway=lambda: file.write(data[: len(data) // 2]))
                file.write(data)

            yield SimpleNamespace(write=write, flush=file.flush, fileno=file.fileno)


class _Changed:
    """A module with other functions in the place of some."""

    def __init__(self, module: ModuleType, **functions: Callable[..., Any]) -> None:
        self._module = module
        self.__dict__ |= functions

    def __getattr__(self, name: str) -> Any:
        return getattr(self._module, name)


def _is_there(name: str, *, dir_fd: int | None = None) -> bool:
    try:
        os.stat(name, dir_fd=dir_fd, follow_symlinks=False)
    except FileNotFoundError:
        return False
    return True
