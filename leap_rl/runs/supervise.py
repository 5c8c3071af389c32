"""A process that watches over a run's driver and resumes the run when the driver is killed."""

from __future__ import annotations

import signal
from types import FrameType

from leap_rl.runs.display import shown, tell
from leap_rl.runs.header import LoadedRun
from leap_rl.runs.invocation import Invocation
from leap_rl.runs.process import Request, RunProcess
from leap_rl.tracking.metrics import Row


def supervise(run: LoadedRun, call: Invocation) -> int:
    """Run a run's driver in a process of its own, again whenever it is killed.

    A driver that ends by itself has a reason, which another one would find too: it failed, its run
    is done, or it was asked to stop. The exit status of the last driver is returned, and what made
    it fail is raised.
    """
    restarts, most = 0, run.config.runtime.max_driver_restarts
    driver: RunProcess | None = None
    asked, rows_seen = 0, call.rows_seen

    def pass_on(number: int, frame: FrameType | None) -> None:
        nonlocal asked
        asked = number
        if driver is not None:
            driver.send_signal(number)

    def on_row(row: Row) -> None:
        nonlocal rows_seen
        rows_seen += 1
        call.on_row(row)

    former = {one: signal.signal(one, pass_on) for one in (signal.SIGINT, signal.SIGTERM)}
    try:
        while True:
            request = Request(
                action="resume",
                command="resume",
                place=run.folder.place,
                trusts_imports=call.trusts_imports,
                supervised=True,
                rows_seen=rows_seen,
            )
            driver = RunProcess(request)
            if asked:  # while it was started, so nobody has told it
                driver.send_signal(asked)
            status = driver.wait(on_row)
            if status >= 0 or asked:
                return status if status >= 0 else 128 + asked
            killed = f"the driver was killed ({signal.Signals(-status).name})"
            if restarts == most:
                tell(
                    f"{killed} once more than {restarts} times, as runtime.max_driver_restarts "
                    f"allows; {shown(run.folder)} can be resumed"
                )
                return 128 - status
            restarts += 1
            tell(f"{killed}; resuming {shown(run.folder)}, restart {restarts} of {most}")
    finally:
        for one, handler in former.items():
            signal.signal(one, handler)
