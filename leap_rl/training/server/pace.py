"""How often trainers stream: as asked for, or less often where the server would be too busy."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

BUSY_SHARE = 0.5
"""Of its time, what the server may take for messages."""

LOOK_EVERY_S = 5.0

SLOWEST = 32.0
"""At most so many times the intervals that were asked for: the rest is not streams."""


@dataclass(kw_only=True)
class Pace:
    """The factor on the intervals between streams and between snapshots.

    The load goes with its inverse, so a look finds the factor at which it is right.
    """

    clock: Callable[[], float] = time.monotonic
    cpu_clock: Callable[[], float] = time.process_time
    factor: float = 1.0
    _served_s: float = 0.0
    """In calls since the last look, on the clock: writing takes time and no processor."""

    def __post_init__(self) -> None:
        self._looked_s, self._cpu_s = self.clock(), self.cpu_clock()

    @contextmanager
    def serving(self) -> Iterator[None]:
        """Count the time of a call."""
        began_s = self.clock()
        try:
            yield
        finally:
            self._served_s += self.clock() - began_s

    def look(self) -> None:
        """Compute the factor again, every few seconds; called often."""
        now, cpu_s = self.clock(), self.cpu_clock()
        elapsed_s = now - self._looked_s
        if elapsed_s < LOOK_EVERY_S:
            return
        # Reading messages takes processor time outside of calls.
        share = max(self._served_s, cpu_s - self._cpu_s) / elapsed_s
        self.factor = min(max(1.0, self.factor * share / BUSY_SHARE), SLOWEST)
        self._looked_s, self._cpu_s, self._served_s = now, cpu_s, 0.0
