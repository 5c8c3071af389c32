"""A function that can be stopped and continued, so that who called it sees how far it has come."""

from __future__ import annotations

import threading
from collections.abc import Callable

from leap_rl.core.determinism import configure_torch

LEAVE_WITHIN_S = 10.0
"""A function that is stopped and has not left by then is left behind, in its daemon thread."""


class Stopped(BaseException):
    """Raised within a function that is not to continue; no `except Exception` takes it."""


class Stepwise:
    """A function in a thread of its own, which computes only while somebody waits in `resume`.

    So there is never more than one of the two at work, and it may use what belongs to the process,
    such as torch's global random stream.
    """

    def __init__(self, function: Callable[[], object]) -> None:
        self._function = function
        self._thread = threading.Thread(target=self._run, name="script", daemon=True)
        self._its_turn, self._ours = threading.Semaphore(0), threading.Semaphore(0)
        self._stopping = False
        self._error: BaseException | None = None
        self.ended = False
        self.result: object = None

    def resume(self) -> None:
        """Let it run until it pauses or ends; raises what it raised."""
        if not self._thread.is_alive():
            self._thread.start()
        self._its_turn.release()
        self._ours.acquire()
        if self._error is not None:
            raise self._error

    def pause(self) -> None:
        """Within the function: let the caller continue, and wait for the next `resume`."""
        self.check()
        self._ours.release()
        self._its_turn.acquire()
        self.check()

    def check(self) -> None:
        """Within the function: raise `Stopped` if it is not to continue."""
        if self._stopping:
            raise Stopped

    def stop(self) -> None:
        """Have it leave where it is, as soon as it pauses or checks."""
        if self._thread.is_alive():
            self._stopping = True
            self._its_turn.release()
            self._thread.join(LEAVE_WITHIN_S)

    def _run(self) -> None:
        configure_torch()  # some of it is a thread's own
        self._its_turn.acquire()
        try:
            self.result = self._function()
        except BaseException as error:
            self._error = error
        self.ended = True
        self._ours.release()
