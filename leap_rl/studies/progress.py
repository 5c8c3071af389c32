"""How far a study is: told on stderr, a line at a time."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Final

from leap_rl.runs.display import tell
from leap_rl.studies.cells import Cell

TELL_EVERY_S: Final = 30.0

_LONGEST_S: Final = timedelta.max // timedelta(seconds=1)


@dataclass(kw_only=True)
class Progress:
    """Counts what is done, and tells it when asked and every half a minute."""

    cells: Sequence[Cell]
    tell: Callable[[str], object] = tell
    clock: Callable[[], float] = time.monotonic
    done: float = 0.0
    """Agent steps that were done when it was last told."""
    _began_s: float = 0.0
    _at_first: float = 0.0
    _next_s: float = field(default=0.0)

    def __post_init__(self) -> None:
        self._began_s = self.clock()
        self._at_first = self._done()
        self.say()

    def look(self) -> None:
        """Tell how far it is, unless that was told a moment ago."""
        if self.clock() >= self._next_s:
            self.say()

    def say(self, what: str = "") -> None:
        """Tell how far it is, after what has happened."""
        self._next_s = self.clock() + TELL_EVERY_S
        self.done, total = self._done(), sum(cell.agent_steps for cell in self.cells)
        done = self.done
        finished = sum(cell.finished for cell in self.cells)
        words = [
            *([what] if what else []),
            f"{finished} of {len(self.cells)} cells",
            f"{done:,.0f} of {total:,} agent steps ({done / total:.0%})",
        ]
        made, spent_s = done - self._at_first, self.clock() - self._began_s
        if made > 0 and done < total:
            words.append(f"about {clock_of(spent_s * (total - done) / made)} left")
        self.tell("; ".join(words))

    def _done(self) -> float:
        return sum(cell.agent_steps_done for cell in self.cells)


def clock_of(seconds: float) -> str:
    """Return a time in words, such as 0:41:07."""
    return str(timedelta(seconds=round(min(seconds, _LONGEST_S))))
