"""Times the methods of an object from outside."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable
from typing import Any


class Stopwatch:
    """Sums the time of wrapped methods; the wrapped methods that one calls are not counted in it.

    The default clock, in ns, is the thread's CPU time: it stops while another process has the core.
    """

    def __init__(self, clock: Callable[[], int] = time.thread_time_ns) -> None:
        self.totals_ns: dict[str, int] = defaultdict(int)
        self._clock = clock
        self._inner_ns = 0  # of the wrapped calls inside the running one
        self._wrapped: list[tuple[Any, str, Any]] = []

    def wrap(self, owner: Any, method: str, part: str) -> None:
        """Add the time of an object's method to a part, until `unwrap`.

        Stopwatches can wrap the same method; they are unwrapped in reverse order.
        """
        before = vars(owner).get(method)
        function = getattr(owner, method)
        clock, totals_ns = self._clock, self.totals_ns

        def timed(*arguments: Any, **options: Any) -> Any:
            outer_ns, self._inner_ns = self._inner_ns, 0
            started_ns = clock()
            try:
                return function(*arguments, **options)
            finally:
                taken_ns = clock() - started_ns
                totals_ns[part] += taken_ns - self._inner_ns
                self._inner_ns = outer_ns + taken_ns

        setattr(owner, method, timed)
        self._wrapped.append((owner, method, before))

    def unwrap(self) -> None:
        """Restore the objects' own methods."""
        for owner, method, before in reversed(self._wrapped):
            if before is None:
                delattr(owner, method)
            else:
                setattr(owner, method, before)
        self._wrapped.clear()
