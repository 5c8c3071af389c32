"""The local runtime: server and one trainer in this process and thread, task after task."""

from __future__ import annotations

import time
from collections.abc import Callable

from leap_rl.determinism import configure_torch
from leap_rl.messages import (
    Abandon,
    Claim,
    Complete,
    Continue,
    Counted,
    ServerStatus,
    Stream,
    Work,
)
from leap_rl.training.interrupts import Interrupts
from leap_rl.training.parameter_server import ParameterServer
from leap_rl.training.runtime import Job, StreamSchedule


class LocalLink:
    """Calls the server directly, and tells the user how the run stands along the way."""

    def __init__(
        self,
        server: ParameterServer,
        *,
        stream_every_s: float,
        report: Callable[[ServerStatus], None],
        interrupts: Interrupts,
    ) -> None:
        self._server = server
        self._schedule = StreamSchedule(stream_every_s, time.monotonic)
        self._report = report
        self._interrupts = interrupts

    def claim(self, claim: Claim) -> Work:
        """Ask for work."""
        work = self._server.claim(claim)
        self._report(self._server.status())
        return work

    def stream_due(self) -> bool:
        """Whether a stream is to be sent now; a run that is to stop stops here."""
        self._interrupts.check()
        return self._schedule.due()

    def stream(self, message: Stream) -> Continue | Abandon:
        """Send a sum so far."""
        self._schedule.start_over()
        answer = self._server.stream(message)
        self._report(self._server.status())
        return answer

    def complete(self, message: Complete) -> Counted | Abandon:
        """Send a whole sum."""
        answer = self._server.complete(message)
        self._report(self._server.status())
        return answer


class LocalRuntime:
    """Runs a job in this process; needs no Ray, and a debugger can stop it anywhere.

    Args:
        interrupts: What may ask the run to stop.
    """

    def __init__(self, interrupts: Interrupts | None = None) -> None:
        self._interrupts = interrupts or Interrupts()

    def run(self, job: Job, report: Callable[[ServerStatus], None]) -> None:
        """Run ``job`` to its end."""
        configure_torch()
        # Here trainer and server are one thread: an exception from anywhere would tear a write.
        with self._interrupts, self._interrupts.held_back():
            server = job.make_server()
            link = LocalLink(
                server,
                stream_every_s=job.stream_every_s,
                report=report,
                interrupts=self._interrupts,
            )
            job.make_trainer(name="trainer-0", incarnation=1, link=link).run()
