"""RUN/live.json: a run's status for `leap-rl watch`, while its driver lives.

    {"written": UNIX_SECONDS, "status": {...}}

It is for display only. A killed driver leaves it behind: the run's lock tells whether one lives.
"""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, replace
from pathlib import Path
from typing import NamedTuple

from leap_rl.core import plain_json
from leap_rl.core.regular_file import read_regular
from leap_rl.storage.dataclass_from_json import dataclass_from_json
from leap_rl.storage.durable_files import write_atomically
from leap_rl.tracking.console import Console
from leap_rl.tracking.metrics import UNITS
from leap_rl.tracking.status import RunStatus, TaskStatus

LIVE = "live.json"
WRITE_EVERY_S = 1.0
LARGEST = 1 << 20
"""Most bytes that are read; the status of a thousand tasks has a fifth of that."""


class LiveConsole(Console):
    """Shows a run on another console, and writes its status to a file every `every_s`.

    A full disk under the file or the console's log does not end the run.
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
        self._remove()  # the file of a killed driver

    def show(self, status: RunStatus) -> None:
        with _best_effort():
            self._console.show(status)
        if self._clock() >= self._next_s:
            self._next_s = self._clock() + self._every_s
            text = json.dumps({"written": time.time(), "status": asdict(status)})
            with suppress(OSError):
                write_atomically(self._path, text.encode(), synced=False)  # useless after a crash

    def message(self, text: str) -> None:
        with _best_effort():
            self._console.message(text)

    def close(self) -> None:
        with _best_effort():
            self._console.close()
        self._remove()

    def _remove(self) -> None:
        with suppress(OSError):
            self._path.unlink(missing_ok=True)


@contextmanager
def _best_effort() -> Iterator[None]:
    """Suppress OSErrors, except that of a pipe whose reader is gone."""
    try:
        yield
    except OSError as error:
        if isinstance(error, BrokenPipeError):
            raise


class LiveStatus(NamedTuple):
    """A run's last status from its driver."""

    status: RunStatus
    """Its elapsed time includes `age_s`."""
    age_s: float
    """Time since it was written, by this machine's clock; at least 0."""


def read_live(folder: Path) -> LiveStatus | None:
    """Return the status in a run's folder; None if the file is missing or not safe to show."""
    try:
        document = plain_json.load(read_regular(folder / LIVE, LARGEST))
        if not _can_be_shown(document):
            return None
        values = document["status"]
        running = tuple(dataclass_from_json(TaskStatus, task) for task in values["running"])
        status = dataclass_from_json(RunStatus, {**values, "running": running})
        age_s = max(0.0, time.time() - float(document["written"]))
    except (OSError, ValueError, KeyError, TypeError):
        return None
    if status.rounds < 1 or status.agent_steps_total < 1 or status.unit not in [*UNITS]:
        return None
    if status.command == "train" and status.last_row and "meta_step" not in status.last_row:
        return None
    return LiveStatus(replace(status, elapsed_s=status.elapsed_s + age_s), age_s)


def _can_be_shown(value: object) -> bool:
    if isinstance(value, dict):
        return all(map(_can_be_shown, [*value, *value.values()]))
    if isinstance(value, list):
        return all(map(_can_be_shown, value))
    if isinstance(value, str):
        return value.isprintable()
    return value is None or math.isfinite(value)  # type: ignore[arg-type]
