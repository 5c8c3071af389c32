"""How a run is stopped from outside: Ctrl-C, SIGTERM, the end of its time, or of its cluster.

The first signal asks the run to stop: it finishes what it is writing, and its folder can be
resumed. The second leaves at once, and so does the first if the run has not stopped within seconds.
All writes are atomic, so the folder is whole in any case.

Python raises a KeyboardInterrupt wherever the main thread is, even in another library's callback,
where nothing catches it. So the request is remembered too, and loops check it. Where an exception
must not interrupt, as between the halves of a write, `Interrupts.held_back` leaves it to the
loop.
"""

from __future__ import annotations

import os
import select
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from enum import Enum
from types import FrameType
from typing import Any, Final

from leap_rl.core.errors import EXIT_FAILED, EXIT_INTERRUPTED, EXIT_STOPPED, EXIT_TERMINATED
from leap_rl.core.lines import printable
from leap_rl.core.machine import kill_descendants

STOP_WITHIN_S: Final = 6.0
"""A run that has not stopped by then is left at once."""

LOST_WITHIN_S: Final = 20.0
"""The same where its cluster is gone: Ray's shutdown waits some seconds for it."""

LATECOMER_S: Final = 0.5
"""A batch system ends all processes of a run together; this one may get its signal last."""

LONGEST_WAIT_S: Final = 86_400.0
"""`select` takes no times without bound."""

ONE_WISH_S: Final = 0.3
"""Signals so close together are one: `timeout` sends two, to the process and to its group."""


class StopReason(Enum):
    """Why a run is to stop; the values are exit statuses."""

    TIME_OVER = EXIT_STOPPED
    INTERRUPTED = EXIT_INTERRUPTED
    TERMINATED = EXIT_TERMINATED
    CLUSTER_LOST = EXIT_FAILED


_SIGNALS: Final = (signal.SIGINT, signal.SIGTERM)
_LOST: Final = 255
"""No signal's number."""


@dataclass(kw_only=True)
class Interrupts:
    """Listens for signals while it is entered.

    Signals reach Python in the main thread only; entered in another one, or a second time, it
    changes nothing.
    """

    stop_after_s: float | None = None
    """Ask the run to stop this many seconds after ``started_s``; none for never."""
    started_s: float = field(default_factory=time.monotonic)
    """On the monotonic clock."""
    farewell: str | None = None
    """Printed when the run is left at once."""
    leave: Callable[[int], None] = os._exit
    """Ends this process at once, with an exit status."""
    reason: StopReason | None = None
    """Why the run is to stop, if it is."""
    lost: str | None = None
    """What is gone that the run cannot do without; its reason then is CLUSTER_LOST."""
    _wanted: bool = False
    """No event: a handler that another signal interrupts would wait for that one's lock."""
    _raised: bool = False
    """Whether a signal has interrupted the main thread; the next one, of two, would stop its
    stopping."""
    _depth: int = 0
    _held_back: int = 0
    _cleanups: list[Callable[[], object]] = field(default_factory=list)
    _watcher: threading.Thread | None = None

    def is_set(self) -> bool:
        return self._wanted

    def check(self) -> None:
        """Raise a KeyboardInterrupt if the run is to stop; cheap, for loops."""
        if self._wanted:
            raise KeyboardInterrupt

    @contextmanager
    def explaining(self, *failures: type[BaseException]) -> Iterator[None]:
        """Raise a KeyboardInterrupt in place of failures that a stop request caused."""
        try:
            yield
        except failures:
            until_s = time.monotonic() + LATECOMER_S
            while not self._wanted and time.monotonic() < until_s:
                time.sleep(0.01)
            if self._wanted:
                raise KeyboardInterrupt from None
            raise

    def lose(self, cause: str) -> None:
        """Ask the run to stop since its cluster is gone, as ``cause`` says; from any thread."""
        if self._wanted:
            return
        self.lost = cause
        self._want(StopReason.CLUSTER_LOST)
        if self._watcher is not None:
            os.write(self._inlet, bytes([_LOST]))

    def on_leaving(self, cleanup: Callable[[], object]) -> None:
        """Call ``cleanup``, from any thread, if the run is left at once; it must be quick."""
        self._cleanups.append(cleanup)

    @contextmanager
    def held_back(self) -> Iterator[None]:
        """Raise nothing inside; the code there calls `check` where it can stop."""
        self._held_back += 1
        try:
            yield
        finally:
            self._held_back -= 1

    def __enter__(self) -> Interrupts:
        self._depth += 1
        if self._depth == 1 and threading.current_thread() is threading.main_thread():
            try:
                with self.held_back():
                    self._listen()
                self.check()
            except BaseException:
                # __exit__ is skipped if __enter__ raises.
                self.__exit__()
                raise
        return self

    def __exit__(self, *exception: object) -> None:
        self._depth -= 1
        if self._depth == 0 and threading.current_thread() is threading.main_thread():
            self._listen_no_more()

    # -- in the main thread -------------------------------------------------------------------

    def _listen(self) -> None:
        # The system itself writes each signal's number into the pipe, even while the main thread
        # is somewhere that lets no handler of Python's run.
        self._outlet, self._inlet = os.pipe()
        os.set_blocking(self._inlet, False)
        self._main_thread = threading.get_ident()
        self._former_inlet = signal.set_wakeup_fd(self._inlet, warn_on_full_buffer=False)
        self._former: dict[signal.Signals, Any] = {
            number: signal.signal(number, self._handle) for number in _SIGNALS
        }
        # Last: if the time is over already, what it sends must find the handlers in place.
        self._watcher = threading.Thread(target=self._watch, name="interrupts", daemon=True)
        self._watcher.start()

    def reinstall_handlers(self) -> None:
        """Put the signal handlers back after another library, such as Ray, has replaced them."""
        if self._depth and threading.current_thread() is threading.main_thread():
            signal.set_wakeup_fd(self._inlet, warn_on_full_buffer=False)
            for number in _SIGNALS:
                signal.signal(number, self._handle)

    def _listen_no_more(self) -> None:
        for number, handler in self._former.items():
            signal.signal(number, handler)
        signal.set_wakeup_fd(self._former_inlet)
        os.write(self._inlet, b"\0")
        assert self._watcher is not None
        self._watcher.join()
        self._watcher = None
        os.close(self._inlet)
        os.close(self._outlet)

    def _handle(self, number: int, frame: FrameType | None) -> None:
        self._want(StopReason(128 + number))
        if not self._held_back and not self._raised:
            self._raised = True
            raise KeyboardInterrupt

    def _want(self, reason: StopReason) -> None:
        if self.reason is None:
            self.reason = reason
        self._wanted = True

    # -- in a thread of its own ---------------------------------------------------------------

    def _watch(self) -> None:
        """Count signals, look at the time, and leave when it must be."""
        wished_s: float | None = None
        own = 0  # signals that this thread sent itself
        until_s = None if self.stop_after_s is None else self.started_s + self.stop_after_s
        while True:
            wait_s = None
            if until_s is not None:
                wait_s = min(max(0.0, until_s - time.monotonic()), LONGEST_WAIT_S)
            if select.select([self._outlet], [], [], wait_s)[0]:
                numbers = os.read(self._outlet, 64)
                if 0 in numbers:
                    return
                reasons = [StopReason(128 + n) for n in numbers if n in _SIGNALS]
                if _LOST in numbers:
                    reasons.insert(0, StopReason.CLUSTER_LOST)
                while own and StopReason.INTERRUPTED in reasons:
                    reasons.remove(StopReason.INTERRUPTED)
                    own -= 1
            else:
                assert until_s is not None
                reasons = [StopReason.TIME_OVER] if time.monotonic() >= until_s else []
            for reason in reasons:
                now = time.monotonic()
                if wished_s is None:
                    is_lost = reason is StopReason.CLUSTER_LOST
                    wished_s, until_s = now, now + (LOST_WITHIN_S if is_lost else STOP_WITHIN_S)
                    self._want(reason)
                    if is_lost or reason is StopReason.TIME_OVER:  # the main thread may not know
                        own += 1
                        signal.pthread_kill(self._main_thread, signal.SIGINT)
                elif now - wished_s > ONE_WISH_S:
                    self._leave_at_once()
                    return

    def _leave_at_once(self) -> None:
        assert self.reason is not None
        if self.farewell is not None:
            # A terminal's bars hide the cursor.
            begin = "\x1b[?25h\r\n" if sys.stderr.isatty() else ""
            cause = "" if self.lost is None else f"leap-rl: {self.lost}; "
            with suppress(OSError):
                os.write(2, f"{begin}{printable(cause + self.farewell)}\n".encode())
        kill_descendants(os.getpid())
        for cleanup in self._cleanups:
            with suppress(Exception):
                cleanup()
        self.leave(self.reason.value)
