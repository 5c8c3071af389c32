"""A process that watches over a run's driver and resumes the run when the driver is killed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from types import FrameType

from leap_rl.app.display import shown, tell
from leap_rl.app.invocation import Invocation
from leap_rl.config import Config
from leap_rl.core.parsing import TRUST_IMPORTS
from leap_rl.storage.run_folder import RunFolder

SUPERVISED = "LEAP_RL_SUPERVISED"
"""In the environment of a driver that is watched over."""


def is_supervisor(config: Config) -> bool:
    """Whether this process is to watch over a driver, and not to be it."""
    return config.runtime.max_driver_restarts > 0 and SUPERVISED not in os.environ


def supervise(config: Config, folder: RunFolder, call: Invocation) -> int:
    """Run a run's driver in a process of its own, again whenever it is killed.

    A driver that ends by itself has a reason, which another one would find too: it failed, its run
    is done, or it was asked to stop. The exit status of the last driver is returned.
    """
    words = [sys.executable, "-m", "leap_rl", "resume", folder.place]
    words += [TRUST_IMPORTS] if call.trusts_imports else []
    environment = {**os.environ, SUPERVISED: "1"}
    restarts, most = 0, config.runtime.max_driver_restarts
    driver: subprocess.Popen[bytes] | None = None
    asked = 0

    def pass_on(number: int, frame: FrameType | None) -> None:
        nonlocal asked
        asked = number
        if driver is not None and driver.poll() is None:
            driver.send_signal(number)

    former = {one: signal.signal(one, pass_on) for one in (signal.SIGINT, signal.SIGTERM)}
    try:
        while True:
            # What a finished run says on stdout is said here, once.
            driver = subprocess.Popen(words, env=environment, stdout=subprocess.DEVNULL)
            if asked:  # while it was started, so nobody has told it
                driver.send_signal(asked)
            status = driver.wait()
            if status >= 0 or asked:
                return status if status >= 0 else 128 + asked
            killed = f"the driver was killed ({signal.Signals(-status).name})"
            if restarts == most:
                tell(
                    f"{killed} once more than {restarts} times, as runtime.max_driver_restarts "
                    f"allows; {shown(folder)} can be resumed"
                )
                return 128 - status
            restarts += 1
            tell(f"{killed}; resuming {shown(folder)}, restart {restarts} of {most}")
    finally:
        for one, handler in former.items():
            signal.signal(one, handler)
