"""An experiment in cells, each computed once: a stopped one continues with the missing cells.

A cell is named by plain values. What it comes to is one line of a JSONL file, written when the cell
is done, so that a file that was torn in its last line loses that cell alone.
"""

from __future__ import annotations

import json
import multiprocessing
import os
import signal
import sys
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any, Final

from leap_rl.core.determinism import configure_torch, prepare_environment
from leap_rl.core.errors import RunFailedError

Cell = Mapping[str, Any]
"""Names one piece of an experiment: plain values by name."""

SILENCE_S: Final = 60.0
"""After so long without a finished cell, how it stands is told."""


class CellFile:
    """The finished cells of an experiment.

    Args:
        path: The file; made with its folder when the first cell is done.
    """

    def __init__(self, path: Path) -> None:
        self._path = path

    def read(self) -> dict[str, dict[str, Any]]:
        """Return the results of finished cells, by `key_of`.

        Raises:
            ValueError: A line is damaged, other than by a crash that tore the last.
        """
        if not self._path.exists():
            return {}
        *lines, end = self._path.read_bytes().split(b"\n")
        results = {}
        for number, line in enumerate(lines, start=1):
            record = _parsed(line)
            if record is None:
                raise ValueError(
                    f"{self._path}, line {number}: is damaged; delete the line to have that "
                    "cell computed again"
                )
            results[key_of(record["cell"])] = record["result"]
        if (last := _parsed(end)) is not None:  # otherwise absent, or cut off by a crash
            results[key_of(last["cell"])] = last["result"]
        return results

    def add(self, cell: Cell, result: Mapping[str, Any]) -> None:
        """Write a finished cell, in place of a torn one where there is one."""
        self._path.parent.mkdir(parents=True, exist_ok=True)
        before = self._path.read_bytes() if self._path.exists() else b""
        kept = before.rfind(b"\n") + 1
        end = b""
        if _parsed(before[kept:]) is not None:  # whole but for its newline, as an editor leaves it
            kept, end = len(before), b"\n"
        with self._path.open("ab") as file:
            file.truncate(kept)
            line = json.dumps({"cell": dict(cell), "result": dict(result)}, allow_nan=False)
            file.write(end + line.encode() + b"\n")
            file.flush()
            os.fsync(file.fileno())


def _parsed(line: bytes) -> dict[str, Any] | None:
    """Return a finished cell's record, or None where the line holds none."""
    try:
        record = json.loads(line)
    except ValueError:
        return None
    whole = isinstance(record, dict) and all(
        isinstance(record.get(name), dict) for name in ("cell", "result")
    )
    return record if whole else None


def key_of(cell: Cell) -> str:
    """Return what tells a cell from others, whatever the order of its values."""
    key = json.dumps(dict(cell), sort_keys=True)
    return key.replace('method": "pretraining"', 'method": "finetune"')  # as older files name it


def compute_cells(
    cells: Sequence[Cell],
    work: Callable[[Cell], Mapping[str, Any]],
    file: CellFile,
    *,
    processes: int,
    progress: Callable[[str], None],
) -> dict[str, dict[str, Any]]:
    """Compute the cells that are not finished, side by side, and return all results.

    Args:
        cells: All of the experiment.
        work: Computes one; a function of a module, as it runs in processes of its own. When one
            raises, the cells under way are finished and kept, no other is begun, and the first
            error is raised. What ends this process by an exception ends them at once.
        file: Keeps the finished ones.
        processes: How many at a time, of one thread each.
        progress: Called with a line for each that is done, and every minute.
    """
    done = file.read()
    missing = deque(cell for cell in cells if key_of(cell) not in done)
    standing = _Standing(progress, total=len(cells), done=len(cells) - len(missing))
    failed: Exception | None = None
    under_way: dict[Future[Mapping[str, Any]], Cell] = {}
    with _pool(processes) as pool:
        while under_way or (missing and failed is None):
            while missing and failed is None and len(under_way) < processes:
                cell = missing.popleft()
                under_way[pool.submit(_run, work, cell)] = cell
            ended = wait(under_way, timeout=SILENCE_S, return_when=FIRST_COMPLETED).done
            for future in ended:
                cell = under_way.pop(future)
                try:
                    file.add(cell, future.result())
                    standing.finished(cell)
                except BrokenProcessPool:
                    raise  # no further cell is started
                except Exception as error:
                    failed = failed or error
            if not ended:
                standing.tell(len(under_way))
    if failed is not None:
        raise failed
    return file.read()


class _Standing:
    """How far an experiment is, in words."""

    def __init__(self, progress: Callable[[str], None], *, total: int, done: int) -> None:
        self._progress = progress
        self._total, self._at_first, self._done = total, done, done
        self._began_s = time.monotonic()
        progress(f"{done} of {total} cells are done")

    def finished(self, cell: Cell) -> None:
        self._done += 1
        short = {name: value for name, value in cell.items() if not isinstance(value, Mapping)}
        named = ", ".join(f"{name} {value}" for name, value in short.items())
        self._progress(f"{self._done} of {self._total}: {named}")

    def tell(self, under_way: int) -> None:
        elapsed_s = time.monotonic() - self._began_s
        words = f"{under_way} under way, {_clock(elapsed_s)} elapsed"
        if done := self._done - self._at_first:
            words += f", about {_clock(elapsed_s / done * (self._total - self._done))} left"
        self._progress(f"{self._done} of {self._total}, {words}")


def _clock(seconds: float) -> str:
    return str(timedelta(seconds=round(seconds)))


@contextmanager
def _pool(processes: int) -> Iterator[ProcessPoolExecutor]:
    """Processes that end at once when the block ends by an exception."""
    others = set(multiprocessing.active_children())
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(processes, mp_context=context, initializer=_prepare) as pool:
        try:
            yield pool
        except BaseException as error:
            for process in set(multiprocessing.active_children()) - others:
                process.terminate()
            if isinstance(error, BrokenProcessPool):
                raise RunFailedError(
                    "a process that computed a cell was killed; call again to resume"
                ) from None
            raise


def _prepare() -> None:
    prepare_environment()
    configure_torch()
    for stop in (signal.SIGINT, signal.SIGTERM):
        signal.signal(stop, lambda *_: sys.exit())


def _run(work: Callable[[Cell], Mapping[str, Any]], cell: Cell) -> Mapping[str, Any]:
    try:
        return work(cell)
    except SystemExit:  # would end the experiment without a word
        raise KeyboardInterrupt from None
