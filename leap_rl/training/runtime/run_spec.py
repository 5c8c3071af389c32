"""What a runtime is, and the run that it is given."""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

from leap_rl.core.errors import UnfitMachineError
from leap_rl.learners.task import TaskFactory
from leap_rl.meta.gradient_path import Method
from leap_rl.storage.run_folder import RunFolder
from leap_rl.tracking.status import RunStatus
from leap_rl.training.faults import OnFaultPoint, no_fault
from leap_rl.training.rounds.policy import RoundPolicyFactory
from leap_rl.training.server.open_round import LeasePolicy
from leap_rl.training.server.parameter_server import ParameterServer
from leap_rl.training.trainer.trainer import Due, Link, Trainer

if TYPE_CHECKING:
    from leap_rl.core.choices import OnDivergence


@dataclass(frozen=True, kw_only=True, slots=True)
class RunSpec:
    """All that a server and its trainers are made from; small, and travels to any process."""

    run_dir: str
    """The run's folder, which holds at least its first checkpoint."""
    fingerprint: str
    """SHA-256 of the defining config."""
    method: Method
    make_task: TaskFactory
    make_policy: RoundPolicyFactory
    stream_every_s: float
    snapshot_every_s: float
    lease_policy: LeasePolicy
    keep_checkpoints: int | None = None
    """How many checkpoints keep their parameters; none for all."""
    session: str = field(default_factory=lambda: secrets.token_hex(8))
    """Identifies this driver in the leases of its trainers."""
    on_divergence: OnDivergence = "stop"
    on_fault_point: OnFaultPoint = no_fault
    """Fault-injection callback of all processes; must be picklable."""

    def make_server(self, *, trainers_live: bool = False) -> ParameterServer:
        """Make the run's server; with ``trainers_live`` in place of one that died.

        Raises:
            RunFolderError: The folder lacks something, or what it holds is damaged.
        """
        folder = RunFolder(self.run_dir)
        return ParameterServer(
            folder=folder,
            fingerprint=self.fingerprint,
            policy=self.make_policy(folder),
            lease_policy=self.lease_policy,
            on_divergence=self.on_divergence,
            keep_checkpoints=self.keep_checkpoints,
            session=self.session,
            trainers_live=trainers_live,
            on_fault_point=self.on_fault_point,
        )

    def make_schedule(self) -> StreamSchedule:
        """Make a trainer's schedule."""
        return StreamSchedule(
            stream_every_s=self.stream_every_s, snapshot_every_s=self.snapshot_every_s
        )

    def make_trainer(self, *, name: str, incarnation: int, link: Link) -> Trainer:
        """Make a trainer that reaches the server over ``link``.

        Raises:
            UnfitMachineError: This machine cannot compute the run's tasks.
        """
        try:
            self.make_task.check_machine()
        except ValueError as error:
            raise UnfitMachineError(f"{name} cannot join: {error}") from None
        return Trainer(
            name=name,
            incarnation=incarnation,
            link=link,
            make_task=self.make_task,
            method=self.method,
            on_fault_point=self.on_fault_point,
        )


class Runtime(Protocol):
    """Runs a server and trainers somewhere until the run is finished."""

    def run(self, run_spec: RunSpec, report: Callable[[RunStatus], None]) -> None:
        """Run it; ``report`` is called with its status, several times a second at most.

        Raises:
            RunFailedError: The run cannot continue.
            KeyboardInterrupt: The user stops it; the run's folder can be resumed.
        """


@dataclass(kw_only=True)
class StreamSchedule:
    """Says what a trainer is to send next, and when."""

    stream_every_s: float
    """Seconds between two streams."""
    snapshot_every_s: float
    """Seconds between two snapshots, which go with a stream."""

    def __post_init__(self) -> None:
        self.start_task()

    def start_task(self) -> None:
        """Count again from now."""
        now = time.monotonic()
        self._next_stream_s = now + self.stream_every_s
        self._next_snapshot_s = now + self.snapshot_every_s

    def due(self) -> Due:
        """Return what is due."""
        now = time.monotonic()
        if now >= self._next_snapshot_s:
            return Due.SNAPSHOT
        return Due.SUM if now >= self._next_stream_s else Due.NOTHING

    def sent(self, *, snapshot: bool) -> None:
        """Take note that a stream is on its way."""
        now = time.monotonic()
        self._next_stream_s = now + self.stream_every_s
        if snapshot:
            self._next_snapshot_s = now + self.snapshot_every_s

    def lost(self) -> None:
        """Take note that a stream may not have arrived: what it carried is due again."""
        self._next_snapshot_s = time.monotonic()
