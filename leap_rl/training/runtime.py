"""What a runtime runs, and what a runtime is."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from leap_rl.messages import ServerStatus
from leap_rl.meta.gradient_path import Method
from leap_rl.run_folder import RunFolder
from leap_rl.tasks.task import TaskFactory
from leap_rl.training.errors import UnfitMachineError
from leap_rl.training.parameter_server import ParameterServer
from leap_rl.training.rounds import RoundPolicyFactory
from leap_rl.training.trainer import Link, Trainer


@dataclass(frozen=True, kw_only=True, slots=True)
class Job:
    """All that a server and its trainers are made from; small, and travels to any process."""

    run_dir: str
    """The run's folder, which holds at least its first checkpoint."""
    fingerprint: str
    """SHA-256 of the defining config."""
    method: Method
    make_task: TaskFactory
    make_policy: RoundPolicyFactory
    stream_every_s: float
    lease_s: float
    max_attempts: int

    def make_server(self) -> ParameterServer:
        """Make the run's server as the folder's newest checkpoint says.

        Raises:
            RunFolderError: The folder lacks something, or what it holds is damaged.
        """
        folder = RunFolder(self.run_dir)
        return ParameterServer(
            folder=folder,
            fingerprint=self.fingerprint,
            policy=self.make_policy(folder),
            lease_s=self.lease_s,
            max_attempts=self.max_attempts,
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
        )


class Runtime(Protocol):
    """Runs a job's server and trainers somewhere until the job is finished."""

    def run(self, job: Job, report: Callable[[ServerStatus], None]) -> None:
        """Run ``job``; ``report`` hears how it stands, several times a second at most.

        Raises:
            RunFailedError: The job cannot go on.
            TaskFailedError: A task's numbers went bad.
            KeyboardInterrupt: The user wants it stopped; the run's folder can be resumed.
        """


class StreamSchedule:
    """Says when the next stream is due.

    Args:
        every_s: Seconds between two streams.
        clock: Monotonic seconds.
    """

    def __init__(self, every_s: float, clock: Callable[[], float]) -> None:
        self._every_s = every_s
        self._clock = clock
        self._next = clock() + every_s

    def due(self) -> bool:
        """Whether the time has come."""
        return self._clock() >= self._next

    def start_over(self) -> None:
        """Count anew from now."""
        self._next = self._clock() + self._every_s
