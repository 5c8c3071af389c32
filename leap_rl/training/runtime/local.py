"""The local runtime: server and one trainer in this process and thread, task after task."""

from __future__ import annotations

from collections.abc import Callable

from leap_rl.compute.determinism import configure_torch
from leap_rl.storage.run_folder import RunFolder
from leap_rl.tracking.status import RunStatus
from leap_rl.training.errors import RunFailedError
from leap_rl.training.interrupts import Interrupts
from leap_rl.training.messages import (
    Abandon,
    Claim,
    Complete,
    Continue,
    Counted,
    Diverged,
    Stream,
    Work,
)
from leap_rl.training.runtime.run_spec import RunSpec, StreamSchedule
from leap_rl.training.server.parameter_server import ParameterServer
from leap_rl.training.trainer.trainer import Due


class LocalLink:
    """Calls the server directly, and tells the user how the run stands along the way."""

    def __init__(
        self,
        server: ParameterServer,
        schedule: StreamSchedule,
        report: Callable[[RunStatus], None],
        interrupts: Interrupts,
    ) -> None:
        self._server = server
        self._schedule = schedule
        self._report = report
        self._interrupts = interrupts

    def claim(self, claim: Claim) -> Work:
        """Ask for work."""
        work = self._server.claim(claim)
        self._schedule.start_task()
        self._report(self._server.status())
        return work

    def due(self) -> Due:
        """What is to be sent now; of a run that is to stop, a snapshot."""
        return Due.SNAPSHOT if self._interrupts.is_set() else self._schedule.due()

    def stream(self, message: Stream) -> Continue | Abandon:
        """Send a sum so far; a run that is to stop stops here, once its snapshot is on disk."""
        self._schedule.sent(snapshot=message.snapshot is not None)
        answer = self._server.stream(message)
        if message.snapshot is not None:
            self._interrupts.check()
        self._server.tick()
        self._report(self._server.status())
        return answer

    def complete(self, message: Complete) -> Counted | Abandon:
        """Send a whole sum."""
        answer = self._server.complete(message)
        self._schedule.start_task()
        self._report(self._server.status())
        return answer

    def diverged(self, message: Diverged) -> Abandon:
        """Tell that a task's numbers are no longer finite."""
        return self._server.diverged(message)


class LocalRuntime:
    """Runs a run in this process; needs no Ray, and a debugger can stop it anywhere.

    Args:
        interrupts: What may ask the run to stop.
    """

    def __init__(self, interrupts: Interrupts | None = None) -> None:
        self._interrupts = interrupts or Interrupts()

    def run(self, run_spec: RunSpec, report: Callable[[RunStatus], None]) -> None:
        """Run it to its end.

        Raises:
            RunFailedError: The run cannot continue.
        """
        configure_torch()
        # Here trainer and server are one thread: an exception from anywhere would tear a write.
        alone = RunFolder(run_spec.run_dir).serving()
        with self._interrupts, self._interrupts.held_back(), alone:
            server = run_spec.make_server()
            link = LocalLink(server, run_spec.make_schedule(), report, self._interrupts)
            run_spec.make_trainer(name="trainer-0", incarnation=1, link=link).run()
            failure = server.status().failure
        if failure is not None:
            raise RunFailedError(failure)
