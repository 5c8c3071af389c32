"""A trainer's actor, and its client of the server's actor."""

from __future__ import annotations

import os
import signal
import threading
import time
from dataclasses import dataclass
from typing import Any

import ray
from ray.exceptions import ActorUnavailableError, GetTimeoutError, RayError

from leap_rl.core.determinism import configure_torch
from leap_rl.core.errors import RunFailedError
from leap_rl.core.machine import kill_descendants
from leap_rl.training import messages
from leap_rl.training.run_spec import RunSpec
from leap_rl.training.runtime.ray.calls import ANSWER_TIMEOUT_S, FIRST_PAUSE_S, Reference, ask
from leap_rl.training.trainer.trainer import Due, StreamSchedule, Trainer

LEAVE_WITHIN_S = 5.0
"""A trainer that gets SIGTERM and has no answer to its snapshot by then leaves without."""

HEARTBEATS_A_LEASE = 4

HUNG_HEARTBEATS = 2 * HEARTBEATS_A_LEASE
"""So many in a row without an update for a lease: the task hangs, and another has its slot. They
are counted, as after a machine's sleep the first finds every update old."""


def _end_process() -> None:
    """End this process at once, from any thread, with those that it started."""
    kill_descendants(os.getpid())
    os._exit(1)


@dataclass(frozen=True, slots=True)
class _Sent:
    """A stream on its way."""

    ticket: messages.Ticket
    has_snapshot: bool
    reference: Reference
    at_s: float

    def has_answer(self) -> bool:
        return bool(ray.wait([self.reference], timeout=0)[0])


@dataclass
class RayClient:
    """A trainer's way to the server actor."""

    server: Any
    schedule: StreamSchedule
    waits: bool = True
    """Whether a claim that finds no free slot is answered when there is one."""
    _in_flight: _Sent | None = None
    _updated_s: float | None = None
    _snapshot_now: bool = False
    _leave_s: float | None = None
    _is_calling: bool = False

    def snapshot_now(self) -> None:
        """Make a snapshot due; from any thread."""
        self._snapshot_now = True

    def leave(self) -> None:
        """Make a snapshot due, and end this process once that is answered; in the main thread."""
        if self._leave_s is None:
            self._snapshot_now, self._leave_s = True, time.monotonic() + LEAVE_WITHIN_S
        if self._updated_s is None:  # no task, or none that has begun
            if self._is_calling:
                raise SystemExit(1)  # Ray's end lets what is on its way arrive
            _end_process()  # those who import users' modules catch SystemExit

    @property
    def is_leaving(self) -> bool:
        """Whether this process is to end, with the SystemExit that says so."""
        return self._leave_s is not None

    def claim(self, claim: messages.Claim) -> messages.Work:
        self._updated_s = None
        if self._leave_s is not None:
            raise SystemExit(1)
        work: messages.Work = self._call(self.server.claim, claim, self.waits)
        self.schedule.start_task()
        return work

    def due(self, *, restorable: bool) -> Due:
        now = self._updated_s = time.monotonic()
        if self._leave_s is not None and (
            not restorable or self._has_left_snapshot() or now > self._leave_s
        ):
            raise SystemExit(1)  # as Ray's own handler does at once
        wanted = self._snapshot_now and restorable
        due = Due.SNAPSHOT if wanted else self.schedule.due(restorable=restorable)
        return Due.NOTHING if due is Due.NOTHING or self._is_on_the_way() else due

    def is_alive(self, within_s: float) -> bool:
        """Whether the task is still starting, or had an update within the last seconds."""
        updated_s = self._updated_s
        return updated_s is None or time.monotonic() - updated_s < within_s

    def stream(self, message: messages.Stream) -> messages.Continue | messages.Abandon | None:
        answer = self._last_answer(message.ticket)
        if not isinstance(answer, messages.Abandon):
            has_snapshot = message.snapshot is not None
            reference = self.server.stream.remote(message)
            self._in_flight = _Sent(message.ticket, has_snapshot, reference, time.monotonic())
            self._snapshot_now = self._snapshot_now and not has_snapshot
            self.schedule.sent(snapshot=has_snapshot)
        return answer

    def complete(self, message: messages.Complete) -> messages.Counted | messages.Abandon:
        self._updated_s = None
        answer: messages.Counted | messages.Abandon = self._call(self.server.complete, message)
        if self._leave_s is not None:
            raise SystemExit(1)  # the next task is another trainer's
        self.schedule.start_task()
        return answer

    def diverged(self, message: messages.Diverged) -> messages.Abandon:
        self._updated_s = None
        answer: messages.Abandon = self._call(self.server.diverged, message)
        return answer

    def _call(self, method: Any, *message: object) -> Any:
        # Until there is an answer: the server knows a message that comes twice by its numbers.
        self._is_calling = True
        try:
            return ask(method, *message, timeout_s=ANSWER_TIMEOUT_S)
        finally:
            self._is_calling = False

    def _has_left_snapshot(self) -> bool:
        """Return whether the newest snapshot is with the server."""
        sent = self._in_flight
        return bool(not self._snapshot_now and sent and sent.has_snapshot and sent.has_answer())

    def _is_on_the_way(self) -> bool:
        sent = self._in_flight
        late_s = time.monotonic() - ANSWER_TIMEOUT_S
        return sent is not None and sent.at_s > late_s and not sent.has_answer()

    def _last_answer(self, ticket: messages.Ticket) -> messages.Continue | messages.Abandon | None:
        sent, self._in_flight = self._in_flight, None
        if sent is None or sent.ticket != ticket:
            return None
        try:
            answer: messages.Continue | messages.Abandon = ray.get(sent.reference, timeout=0)
        except (GetTimeoutError, ActorUnavailableError):
            # The sum is in the next stream again; a snapshot is not.
            if sent.has_snapshot:
                self.schedule.lost()
            return None
        if isinstance(answer, messages.Continue):
            self.schedule.pace = answer.pace
        return answer


@dataclass
class RunTrainer:
    """A run's trainer in this process."""

    client: RayClient
    trainer: Trainer
    lease_s: float

    @classmethod
    def of(
        cls, run_spec: RunSpec, name: str, incarnation: int, server: Any, *, waits: bool = True
    ) -> RunTrainer:
        """Make a run's trainer; without ``waits`` it does not wait where no slot is free.

        Raises:
            UnfitMachineError: This machine cannot compute the run's tasks.
        """
        client = RayClient(server, run_spec.make_schedule(), waits)
        # One that serves other runs meanwhile has no core to lend.
        lends = waits and run_spec.lends_cores
        trainer = run_spec.make_trainer(
            name=name,
            incarnation=incarnation,
            server=client,
            node=ray.get_runtime_context().get_node_id() if lends else None,
        )
        return cls(client, trainer, run_spec.lease_policy.lease_s)

    def run(self) -> bool:
        """Train the run's tasks; returns whether it has no more, see `Trainer.run`."""
        client, trainer, server = self.client, self.trainer, self.client.server
        ended = threading.Event()

        def send_heartbeats() -> None:
            # A task of many emulators takes longer to start than a lease lasts, and streams come
            # between updates only. A task that hangs must lose its slot, and then its trainer.
            missed = 0
            while not ended.wait(self.lease_s / HEARTBEATS_A_LEASE):
                if client.is_alive(self.lease_s):
                    missed = 0
                    server.heartbeat.remote(trainer.name, trainer.incarnation)
                    continue
                missed += 1
                if missed == HUNG_HEARTBEATS:  # the pool replaces it
                    _end_process()

        def watch_for_stop() -> None:
            while not ended.is_set():
                try:
                    if ray.get(server.is_stopping.remote(), timeout=ANSWER_TIMEOUT_S):
                        client.snapshot_now()
                        return
                except RayError:  # the server is away: it is asked again when Ray restarted it
                    ended.wait(FIRST_PAUSE_S)

        for background in (send_heartbeats, watch_for_stop):
            threading.Thread(target=background, name=background.__name__, daemon=True).start()
        # A machine that is taken away sends SIGTERM: its last work is not lost.
        former = signal.signal(signal.SIGTERM, lambda *_: client.leave())
        try:
            return trainer.run(waits=client.waits)
        except SystemExit as error:
            if client.is_leaving:
                raise
            raise RunFailedError(f"a task called sys.exit({error.code!r})") from error
        finally:
            ended.set()
            signal.signal(signal.SIGTERM, former)


class TrainerActor:
    """Runs a trainer in a process of its own."""

    def node(self) -> str:
        node: str = ray.get_runtime_context().get_node_id()
        return node

    def run(self, run_spec: RunSpec, name: str, incarnation: int, server: Any) -> None:
        configure_torch()
        RunTrainer.of(run_spec, name, incarnation, server).run()
