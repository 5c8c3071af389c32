"""The actors of the Ray runtime: the parameter server's, a trainer's, and the way between them.

Ray's own retries are off: they execute a call twice and reorder calls. What is sent may be lost or
late; trainers repeat it until they are answered, and the server takes every message any number of
times.
"""

from __future__ import annotations

import asyncio
import random
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from dataclasses import dataclass, replace
from typing import Any, TypeAlias, TypeVar

import numpy as np
import ray
from ray.exceptions import ActorUnavailableError, GetTimeoutError, ObjectLostError, RayError

from leap_rl.compute.determinism import configure_torch
from leap_rl.storage.run_folder import RunFolder
from leap_rl.tracking.status import RunStatus
from leap_rl.training.messages import (
    Abandon,
    Assignment,
    Claim,
    Complete,
    Continue,
    Counted,
    Diverged,
    FloatVector,
    Stream,
    Ticket,
    Wait,
    Work,
)
from leap_rl.training.runtime.ray.metrics import RunMetrics, run_name
from leap_rl.training.runtime.run_spec import RunSpec, StreamSchedule
from leap_rl.training.server.parameter_server import ParameterServer
from leap_rl.training.trainer.trainer import Due

LEAVE_WITHIN_S = 5.0
"""A trainer that gets SIGTERM and has no answer to its snapshot by then leaves without."""

LONG_POLL_S = 10.0
"""A claim that finds no free slot is held this long before it is answered with Wait."""

ANSWER_TIMEOUT_S = 60.0
"""A call unanswered for this long is sent again."""

FIRST_PAUSE_S = 0.5
LONGEST_PAUSE_S = 10.0
HEARTBEATS_A_LEASE = 4

Reference: TypeAlias = "ray.ObjectRef[Any]"
T = TypeVar("T")

_NOTHING = np.empty(0, dtype=np.float32)


def pauses() -> Iterator[float]:
    """Yield seconds to wait between tries: longer each time, and never the same for two callers.

    After a server's death all of its trainers would otherwise come back at once, again and again.
    """
    dice = random.SystemRandom()  # what is computed depends on no pause
    pause_s = FIRST_PAUSE_S
    while True:
        yield pause_s * dice.uniform(0.5, 1.0)
        pause_s = min(2 * pause_s, LONGEST_PAUSE_S)


class ServerActor:
    """Serves the parameter server to many trainers.

    All methods run on one thread, the actor's event loop: the server itself needs no lock, and
    while a claim waits for a free slot the others are served. When the actor dies Ray starts it
    again, and its next life goes on from the run's folder.
    """

    def __init__(self, run_spec: RunSpec) -> None:
        self._run_spec = run_spec
        self._made: ParameterServer | None = None
        self._alone = ExitStack()
        self._theta0s: list[tuple[FloatVector, Reference]] = []
        self._theta0s_of = -1
        self._to_freeze: set[tuple[int, int]] = set()

    @property
    def _server(self) -> ParameterServer:
        """The server, made at the first call, on the thread that will run it."""
        if self._made is None:
            configure_torch()
            self._changed = asyncio.Event()
            self._frozen = asyncio.Event()
            self._stopping = asyncio.Event()
            # For the rest of this process's life.
            self._alone.enter_context(RunFolder(self._run_spec.run_dir).serving())
            self._metrics = RunMetrics(run_name(self._run_spec.run_dir))
            again: bool = ray.get_runtime_context().was_current_actor_reconstructed
            self._made = self._run_spec.make_server(trainers_live=again)
        return self._made

    async def claim(self, claim: Claim) -> tuple[Work, Reference | None]:
        """Answer a claim, at once or when a slot is free."""
        deadline = time.monotonic() + LONG_POLL_S
        while True:
            work = self._server.claim(claim)
            left_s = deadline - time.monotonic()
            if not isinstance(work, Wait) or left_s <= 0:
                return self._by_reference(work)
            self._changed.clear()
            try:
                await asyncio.wait_for(self._changed.wait(), left_s)
            except TimeoutError:
                continue

    async def stream(self, message: Stream) -> Continue | Abandon:
        """Take in a sum so far."""
        answer = self._server.stream(message)
        if message.snapshot is not None:
            self._note_frozen(message.ticket)
        return answer

    async def complete(self, message: Complete) -> tuple[Counted | Abandon, Reference | None]:
        """Take in a whole sum."""
        answer = self._server.complete(message)
        self._note_frozen(message.ticket)
        self._changed.set()
        if isinstance(answer, Abandon):
            return answer, None
        work, reference = self._by_reference(answer.next)
        return Counted(next=work), reference

    async def diverged(self, message: Diverged) -> Abandon:
        """Hear that a task's numbers are no longer finite."""
        answer = self._server.diverged(message)
        self._changed.set()
        return answer

    async def heartbeat(self, trainer: str, incarnation: int) -> None:
        """Hear that a trainer lives."""
        self._server.heartbeat(trainer, incarnation)

    async def trainer_lost(self, trainer: str, cause: str) -> None:
        """Free what a dead trainer held."""
        self._server.trainer_lost(trainer, cause)
        self._changed.set()

    async def is_stopping(self) -> bool:
        """Answer when the run is to stop, or no later than a long poll."""
        assert self._server is not None
        with suppress(TimeoutError):
            await asyncio.wait_for(self._stopping.wait(), LONG_POLL_S)
        return self._stopping.is_set()

    async def take_snapshots(self, within_s: float) -> bool:
        """Ask all trainers for a snapshot; returns whether those are on disk, in that time."""
        running = self._server.status().running
        self._to_freeze = {(task.slot, task.attempt) for task in running}
        self._frozen.clear()
        self._stopping.set()
        if self._to_freeze:
            with suppress(TimeoutError):
                await asyncio.wait_for(self._frozen.wait(), within_s)
        return not self._to_freeze

    def _note_frozen(self, ticket: Ticket) -> None:
        self._to_freeze.discard((ticket.slot, ticket.attempt))
        if not self._to_freeze:
            self._frozen.set()

    async def supervise(self) -> RunStatus:
        """Look after leases and return where the run stands."""
        self._server.tick()
        status = self._server.status()
        self._metrics.publish(status, self._server.counters)
        if status.slots_total > status.slots_complete + len(status.running):
            self._changed.set()
        return status

    def _by_reference(self, work: Work) -> tuple[Work, Reference | None]:
        """Replace θ⁰ by a reference to it: it goes into the object store once a round."""
        if not isinstance(work, Assignment):
            return work, None
        if self._theta0s_of != work.ticket.round:
            self._theta0s_of, self._theta0s = work.ticket.round, []
        references = [known for theta0, known in self._theta0s if theta0 is work.theta0]
        if not references:
            references = [ray.put(work.theta0)]
            self._theta0s.append((work.theta0, references[0]))
        return replace(work, theta0=_NOTHING), references[0]


@dataclass(frozen=True, slots=True)
class _Sent:
    """A stream on its way."""

    ticket: Ticket
    has_snapshot: bool
    reference: Reference
    at_s: float


class RayLink:
    """A trainer's way to the server actor."""

    def __init__(self, server: Any, schedule: StreamSchedule) -> None:
        self._server = server
        self._schedule = schedule
        self._in_flight: _Sent | None = None
        self._updated_s: float | None = None
        self._snapshot_now = False
        self._leave_s: float | None = None

    def snapshot_now(self) -> None:
        """Make a snapshot due; from any thread."""
        self._snapshot_now = True

    def leave(self) -> None:
        """Make a snapshot due, and end this process once that is answered; in the main thread."""
        if self._leave_s is None:
            self._snapshot_now, self._leave_s = True, time.monotonic() + LEAVE_WITHIN_S
        if self._updated_s is None:  # it has no work, or begins with it
            raise SystemExit(1)

    def claim(self, claim: Claim) -> Work:
        """Ask for work until there is an answer."""
        self._updated_s = None
        if self._leave_s is not None:
            raise SystemExit(1)
        work = self._call(lambda: _with_theta0(*_answer(self._server.claim.remote(claim))))
        self._schedule.start_task()
        return work

    def due(self) -> Due:
        """What is to be sent now; called after every update."""
        now = self._updated_s = time.monotonic()
        if self._leave_s is not None and (self._has_left_snapshot() or now > self._leave_s):
            raise SystemExit(1)  # as Ray would have had it at once
        due = Due.SNAPSHOT if self._snapshot_now else self._schedule.due()
        return Due.NOTHING if due is Due.NOTHING or self._is_on_the_way() else due

    def is_alive(self, within_s: float) -> bool:
        """Whether the task is still starting, or had an update within the last seconds."""
        updated_s = self._updated_s
        return updated_s is None or time.monotonic() - updated_s < within_s

    def stream(self, message: Stream) -> Continue | Abandon | None:
        """Send a stream; returns the answer to the last one."""
        answer = self._last_answer(message.ticket)
        if not isinstance(answer, Abandon):
            has_snapshot = message.snapshot is not None
            reference = self._server.stream.remote(message)
            self._in_flight = _Sent(message.ticket, has_snapshot, reference, time.monotonic())
            self._snapshot_now = self._snapshot_now and not has_snapshot
            self._schedule.sent(snapshot=has_snapshot)
        return answer

    def complete(self, message: Complete) -> Counted | Abandon:
        """Send a whole sum until there is an answer."""
        self._updated_s = None

        def complete() -> Counted | Abandon:
            answer, reference = _answer(self._server.complete.remote(message))
            if isinstance(answer, Abandon):
                return answer
            return Counted(next=_with_theta0(answer.next, reference))

        answer = self._call(complete)
        if self._leave_s is not None:
            raise SystemExit(1)  # the next task is another trainer's
        self._schedule.start_task()
        return answer

    def diverged(self, message: Diverged) -> Abandon:
        """Tell that a task's numbers are no longer finite, until there is an answer."""
        self._updated_s = None
        answer: Abandon = self._call(lambda: _answer(self._server.diverged.remote(message)))
        return answer

    def _call(self, call: Callable[[], T]) -> T:
        for pause_s in pauses():
            try:
                return call()
            except (GetTimeoutError, ActorUnavailableError, ObjectLostError):
                # Perhaps it was executed, perhaps not: the server knows the message by its
                # numbers, so the same message goes out again. θ⁰ is lost with the server's life.
                time.sleep(pause_s)
        raise AssertionError

    def _has_left_snapshot(self) -> bool:
        """Whether the server has answered the snapshot that was due for leaving."""
        sent = self._in_flight
        return (
            not self._snapshot_now
            and sent is not None
            and sent.has_snapshot
            and bool(ray.wait([sent.reference], timeout=0)[0])
        )

    def _is_on_the_way(self) -> bool:
        sent = self._in_flight
        return (
            sent is not None
            and time.monotonic() - sent.at_s < ANSWER_TIMEOUT_S
            and not ray.wait([sent.reference], timeout=0)[0]
        )

    def _last_answer(self, ticket: Ticket) -> Continue | Abandon | None:
        sent, self._in_flight = self._in_flight, None
        if sent is None or sent.ticket != ticket:
            return None
        try:
            answer: Continue | Abandon = ray.get(sent.reference, timeout=0)
        except (GetTimeoutError, ActorUnavailableError):
            # The sum is in the next stream again; a snapshot is not.
            if sent.has_snapshot:
                self._schedule.lost()
            return None
        return answer


def _answer(reference: Reference) -> Any:
    return ray.get(reference, timeout=ANSWER_TIMEOUT_S)


def _with_theta0(work: Work, reference: Reference | None) -> Work:
    if not isinstance(work, Assignment):
        return work
    assert reference is not None, "an assignment comes with its initialization"
    return replace(work, theta0=_answer(reference))


class TrainerActor:
    """Runs a trainer in a process of its own."""

    def node(self) -> str:
        """Return the id of the node that it runs on."""
        node: str = ray.get_runtime_context().get_node_id()
        return node

    def run(self, run_spec: RunSpec, name: str, incarnation: int, server: Any) -> None:
        """Train until the run has no more work."""
        configure_torch()
        link = RayLink(server, run_spec.make_schedule())
        trainer = run_spec.make_trainer(name=name, incarnation=incarnation, link=link)
        ended = threading.Event()

        def heartbeat() -> None:
            # A task of many emulators takes longer to start than a lease lasts, and streams come
            # between updates only.
            while not ended.wait(run_spec.lease_policy.lease_s / HEARTBEATS_A_LEASE):
                if link.is_alive(
                    run_spec.lease_policy.lease_s
                ):  # a task that hangs must lose its slot
                    server.heartbeat.remote(name, incarnation)

        def heed() -> None:
            while not ended.is_set():
                try:
                    if ray.get(server.is_stopping.remote(), timeout=ANSWER_TIMEOUT_S):
                        link.snapshot_now()
                        return
                except RayError:  # the server is away: its next life is asked
                    ended.wait(FIRST_PAUSE_S)

        threading.Thread(target=heartbeat, name="heartbeat", daemon=True).start()
        threading.Thread(target=heed, name="heed", daemon=True).start()
        # Of a machine that is taken away: its last work is not lost.
        former = signal.signal(signal.SIGTERM, lambda *_: link.leave())
        try:
            trainer.run()
        finally:
            ended.set()
            signal.signal(signal.SIGTERM, former)
