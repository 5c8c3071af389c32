"""What runs a run: the protocol, and the local runtime, one trainer in this process and thread."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol

from leap_rl.core.determinism import configure_torch
from leap_rl.core.errors import RunFailedError
from leap_rl.storage.run_folder import RunFolder
from leap_rl.tracking.status import RunStatus
from leap_rl.training import messages
from leap_rl.training.interrupts import Interrupts
from leap_rl.training.run_spec import RunSpec
from leap_rl.training.server.parameter_server import ParameterServer
from leap_rl.training.trainer.trainer import Due, StreamSchedule


class Runtime(Protocol):
    """Runs a server and trainers somewhere until the run is finished."""

    def run(self, run_spec: RunSpec, report: Callable[[RunStatus], None]) -> None:
        """Run it; ``report`` is called with its status, several times a second at most.

        Raises:
            RunFailedError: The run cannot continue, or there is no cluster.
            RunFolderError: The run's folder is damaged.
            KeyboardInterrupt: The user stops it; the run's folder can be resumed.
        """


@dataclass
class LocalClient:
    """Calls the server directly, and tells the user how the run stands along the way."""

    server: ParameterServer
    schedule: StreamSchedule
    report: Callable[[RunStatus], None]
    interrupts: Interrupts

    def claim(self, claim: messages.Claim) -> messages.Work:
        work = self.server.claim(claim)
        self.schedule.start_task()
        self.report(self.server.status())
        return work

    def due(self, *, restorable: bool) -> Due:
        """What is to be sent now; of a run that is to stop, a snapshot, or it stops at once."""
        if not self.interrupts.is_set():
            return self.schedule.due(restorable=restorable)
        if not restorable:
            self.interrupts.check()
        return Due.SNAPSHOT

    def stream(self, message: messages.Stream) -> messages.Continue | messages.Abandon:
        """Send a sum so far; a run that is to stop stops here, once its snapshot is on disk."""
        self.schedule.sent(snapshot=message.snapshot is not None)
        answer = self.server.stream(message)
        if message.snapshot is not None:
            self.interrupts.check()
        self.server.tick()
        self.report(self.server.status())
        return answer

    def complete(self, message: messages.Complete) -> messages.Counted | messages.Abandon:
        answer = self.server.complete(message)
        self.schedule.start_task()
        self.report(self.server.status())
        return answer

    def diverged(self, message: messages.Diverged) -> messages.Abandon:
        return self.server.diverged(message)


@dataclass(frozen=True)
class LocalRuntime:
    """Runs a run in this process; needs no Ray, and a debugger can stop it anywhere."""

    interrupts: Interrupts = field(default_factory=Interrupts)

    def run(self, run_spec: RunSpec, report: Callable[[RunStatus], None]) -> None:
        configure_torch()
        # Here trainer and server are one thread: an exception from anywhere would tear a write.
        alone = RunFolder(run_spec.run_dir).serving()
        with self.interrupts, self.interrupts.held_back(), alone:
            server = run_spec.make_server()
            client = LocalClient(server, run_spec.make_schedule(), report, self.interrupts)
            try:
                run_spec.make_trainer(name="trainer-0", incarnation=1, server=client).run()
            except SystemExit as error:  # as some windows of games raise when they are closed
                raise RunFailedError(
                    f"a task called sys.exit({error.code!r}), which ended the run; resume it"
                ) from error
            failure = server.status().failure
        if failure is not None:
            raise RunFailedError(failure)
