"""The parameter server's actor.

Ray's own retries are off: they execute a call twice and reorder calls. What is sent may be lost or
late; trainers repeat it until they are answered, and the server takes every message any number of
times.
"""

from __future__ import annotations

import asyncio
from contextlib import ExitStack, suppress
from dataclasses import replace
from pathlib import Path

import ray

from leap_rl.core.determinism import configure_torch
from leap_rl.storage.run_folder import RunFolder
from leap_rl.tracking.status import RunStatus
from leap_rl.training import messages
from leap_rl.training.run_spec import RunSpec
from leap_rl.training.runtime.ray.metrics import RunMetrics
from leap_rl.training.server.pace import Pace
from leap_rl.training.server.parameter_server import ParameterServer

LONG_POLL_S = 10.0
"""A claim that finds no free slot is answered with Wait when there is one, or after this long."""


class ServerActor:
    """Serves the parameter server to many trainers.

    All methods run on one thread, the actor's event loop: the server itself needs no lock, and
    while a claim waits for a free slot the others are served. When the actor dies Ray starts it
    again, and it resumes from the run's folder.
    """

    def __init__(self, run_spec: RunSpec) -> None:
        self._run_spec = run_spec
        self._made: ParameterServer | None = None
        self._alone = ExitStack()
        self._has_work = asyncio.Event()
        self._all_snapshots = asyncio.Event()
        self._stopping = asyncio.Event()
        self._no_snapshot_yet: set[tuple[int, int]] = set()
        self._pace = Pace()

    @property
    def _server(self) -> ParameterServer:
        """The server, made at the first call, on the thread that will run it."""
        if self._made is None:
            configure_torch()
            with ExitStack() as alone:  # given up where it cannot be made: the next call tries it
                alone.enter_context(RunFolder(self._run_spec.run_dir).serving())
                again: bool = ray.get_runtime_context().was_current_actor_reconstructed
                made = self._run_spec.make_server(trainers_live=again)
                self._metrics = RunMetrics(Path(self._run_spec.run_dir).absolute().name)
                self._made, self._alone = made, alone.pop_all()  # until this process ends
        return self._made

    async def run_spec(self) -> RunSpec:
        """Return what makes the run's trainers."""
        return self._run_spec

    async def claim(self, claim: messages.Claim, waits: bool = True) -> messages.Work:
        """Answer a claim: at once, or where it ``waits`` with Wait when it is time to ask again.

        A claim that waited gets no slot: its trainer may be dead by now, and a slot that loses many
        trainers stops the run.
        """
        work = self._server.claim(claim)
        if isinstance(work, messages.Wait):
            self._has_work.clear()
            if waits:
                await self.await_work()
        return work

    async def await_work(self) -> bool:
        """Answer whether a claim gets work: when one does, or no later than a long poll."""
        self._wake()
        with suppress(TimeoutError):
            await asyncio.wait_for(self._has_work.wait(), LONG_POLL_S)
        return self._has_work.is_set()

    async def stream(self, message: messages.Stream) -> messages.Continue | messages.Abandon:
        with self._pace.serving():
            answer = self._server.stream(message)
        if message.snapshot is not None:
            self._note_snapshot(message.ticket)
        if isinstance(answer, messages.Continue):
            answer = replace(answer, pace=self._pace.factor)
        return answer

    async def complete(self, message: messages.Complete) -> messages.Counted | messages.Abandon:
        answer = self._server.complete(message)
        self._note_snapshot(message.ticket)
        self._wake()
        return answer

    async def diverged(self, message: messages.Diverged) -> messages.Abandon:
        answer = self._server.diverged(message)
        self._wake()
        return answer

    async def heartbeat(self, trainer: str, incarnation: int) -> None:
        self._server.heartbeat(trainer, incarnation)

    async def trainer_lost(self, trainer: str, cause: str) -> None:
        self._server.trainer_lost(trainer, cause)
        self._wake()

    async def fail(self, reason: str) -> None:
        """Stop the run: a trainer cannot compute its tasks."""
        self._server.fail(reason)
        self._wake()

    async def is_stopping(self) -> bool:
        """Answer when the run is to stop, or no later than a long poll."""
        assert self._server is not None
        with suppress(TimeoutError):
            await asyncio.wait_for(self._stopping.wait(), LONG_POLL_S)
        return self._stopping.is_set()

    async def take_snapshots(self, within_s: float) -> None:
        """Ask all trainers for a snapshot, and wait until those are on disk or the time is over."""
        running = self._server.status().running
        self._no_snapshot_yet = {(task.slot, task.attempt) for task in running}
        self._all_snapshots.clear()
        self._stopping.set()
        if self._no_snapshot_yet:
            with suppress(TimeoutError):
                await asyncio.wait_for(self._all_snapshots.wait(), within_s)

    def _note_snapshot(self, ticket: messages.Ticket) -> None:
        self._no_snapshot_yet.discard((ticket.slot, ticket.attempt))
        if not self._no_snapshot_yet:
            self._all_snapshots.set()

    async def supervise(self) -> RunStatus:
        """Let leases expire, and return the run's status."""
        self._server.tick()
        self._pace.look()
        status = self._server.status()
        self._metrics.publish(status, self._server.counters)
        self._wake()
        return status

    def _wake(self) -> None:
        if self._server.has_work:
            self._has_work.set()
