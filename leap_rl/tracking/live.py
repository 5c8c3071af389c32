"""How a run stands, for who looks at it from elsewhere: RUN/live.json, while the driver lives.

    {"written": ..., "view": {...}}     the newest view, and when it was, in Unix seconds

It is for display only: no bit depends on it, and nothing that a run needs is in it. A driver that
is killed leaves it behind; whether one lives, the run's lock says.
"""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import Any

from leap_rl.storage.durable_files import write_atomically
from leap_rl.storage.links import read_regular
from leap_rl.tracking.console import Console
from leap_rl.tracking.views import RunView, TaskView

LIVE = "live.json"
WRITE_EVERY_S = 1.0
LARGEST = 1 << 20
"""Bytes of a file that is read; a view of a thousand tasks has a fifth of that."""


class LiveConsole(Console):
    """Shows a run as another console does, and leaves what it shows in a file.

    Neither a file nor a log on a full disk that cannot be written is a reason for a run to end.

    Args:
        console: Shows the run here.
        folder: The run's.
        every_s: At least so long between two writes.
        clock: Monotonic seconds.
    """

    def __init__(
        self,
        console: Console,
        folder: Path,
        *,
        every_s: float = WRITE_EVERY_S,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._console = console
        self._path = folder / LIVE
        self._every_s = every_s
        self._clock = clock
        self._next_s = clock()
        self._remove()  # what a killed driver left

    def show(self, view: RunView) -> None:
        """Show `view`, and write it where that is due."""
        with _best_effort():
            self._console.show(view)
        if self._clock() >= self._next_s:
            self._next_s = self._clock() + self._every_s
            with suppress(OSError):
                self._write(json.dumps({"written": time.time(), "view": asdict(view)}))

    def message(self, text: str) -> None:
        """Print `text` as the other console does."""
        with _best_effort():
            self._console.message(text)

    def close(self) -> None:
        """Close the other console, and remove the file."""
        with _best_effort():
            self._console.close()
        self._remove()

    def _write(self, text: str) -> None:
        # Whole or not at all, but not synced: after a crash nobody needs it.
        write_atomically(self._path, text.encode(), synced=False)

    def _remove(self) -> None:
        with suppress(OSError):
            self._path.unlink(missing_ok=True)


@contextmanager
def _best_effort() -> Iterator[None]:
    """Suppress errors of writing, unless the reader of a pipe has gone."""
    try:
        yield
    except BrokenPipeError:
        raise
    except OSError:
        pass


@dataclass(frozen=True, kw_only=True)
class LiveView:
    """A run as its driver saw it last."""

    view: RunView
    age_s: float
    """How long ago that was, by this machine's clock; never less than 0."""

    @property
    def now(self) -> RunView:
        """The view, with the time that has passed since counted as elapsed."""
        return replace(self.view, elapsed_s=self.view.elapsed_s + self.age_s)


def read_live(folder: Path) -> LiveView | None:
    """Return how a run stands by its folder; none where there is nothing to be read.

    Whose driver is dead may have a view that is long out of date.
    """
    try:
        document = json.loads(read_regular(folder / LIVE, LARGEST))
        view = _view(document["view"])
        age_s = max(0.0, time.time() - float(document["written"]))
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return None
    return LiveView(view=view, age_s=age_s)


def _view(values: dict[str, Any]) -> RunView:
    """Return what `asdict` was made of.

    Raises:
        ValueError: It is no view that can be shown.
        TypeError, KeyError: The same.
    """
    tasks = tuple(TaskView(**task) for task in values["tasks"])
    view = RunView(**{**values, "tasks": tasks})
    _check(view)
    for task in tasks:
        _check(task)
    row = view.last_row or {}
    if not all(isinstance(value, int | float) and math.isfinite(value) for value in row.values()):
        raise ValueError("last_row")
    if not all(name.isprintable() for name in row):
        raise ValueError("last_row")
    if view.meta_steps < 1 or any(task.agent_steps_total < 1 for task in tasks):
        raise ValueError("a total of 0")
    return view


def _check(one: RunView | TaskView) -> None:
    """Refuse a field of another type, and a text that would do more to a terminal than be read."""
    for each in fields(one):
        value, kind = getattr(one, each.name), str(each.type)
        if kind in ("int", "float", "float | None"):
            fits = isinstance(value, int | float) and math.isfinite(value)
            fits = fits or (kind == "float | None" and value is None)
        elif kind.startswith(("str", "Literal", "Unit")):
            fits = isinstance(value, str) and value.isprintable()
        else:
            continue  # the tasks and the row
        if not fits:
            raise ValueError(each.name)
