"""An experiment in cells, each computed once: a stopped one goes on with what is missing.

A cell is named by plain values. What it comes to is one line of a JSONL file, written when the cell
is done, so that a file that was torn in its last line loses that cell alone.
"""

from __future__ import annotations

import json
import multiprocessing
import os
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from pathlib import Path
from typing import Any

from leap_rl.determinism import configure_torch, prepare_environment

Cell = Mapping[str, Any]
"""Names one piece of an experiment: plain values by name."""


class CellFile:
    """The finished cells of an experiment.

    Args:
        path: The file; made with its folder when the first cell is done.
    """

    def __init__(self, path: Path) -> None:
        self._path = path

    def read(self) -> dict[str, dict[str, Any]]:
        """Return the results of finished cells, by :func:`key_of` their names.

        Raises:
            ValueError: A line before the last is damaged.
        """
        if not self._path.exists():
            return {}
        lines = self._path.read_text(encoding="utf-8").split("\n")
        results = {}
        for number, line in enumerate(lines, start=1):
            try:
                record = json.loads(line)
            except ValueError:
                if number < len(lines) - 1:
                    raise ValueError(
                        f"{self._path}, line {number}: is damaged; delete the line to have that "
                        "cell computed again"
                    ) from None
                continue  # empty, or torn by a crash
            results[key_of(record["cell"])] = record["result"]
        return results

    def add(self, cell: Cell, result: Mapping[str, Any]) -> None:
        """Write a finished cell, in place of a torn one where there is one."""
        self._path.parent.mkdir(parents=True, exist_ok=True)
        whole = self._path.read_bytes() if self._path.exists() else b""
        end = whole.rfind(b"\n") + 1
        with self._path.open("ab") as file:
            file.truncate(end)
            line = json.dumps({"cell": dict(cell), "result": dict(result)}, allow_nan=False)
            file.write(line.encode() + b"\n")
            file.flush()
            os.fsync(file.fileno())


def key_of(cell: Cell) -> str:
    """Return what tells a cell from others, whatever the order of its values."""
    return json.dumps(dict(cell), sort_keys=True)


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
        work: Computes one; a function of a module, as it runs in processes of its own. One that
            raises stops the experiment once the cells under way are done.
        file: Keeps the finished ones.
        processes: How many at a time, of one thread each.
        progress: Hears of each that is done.
    """
    done = file.read()
    missing = [cell for cell in cells if key_of(cell) not in done]
    progress(f"{len(cells) - len(missing)} of {len(cells)} cells are done")
    count = len(cells) - len(missing)
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(processes, mp_context=context, initializer=_prepare) as pool:
        futures = {pool.submit(work, cell): cell for cell in missing}
        try:
            for future in as_completed(futures):
                file.add(futures[future], future.result())
                count += 1
                named = ", ".join(f"{name} {value}" for name, value in futures[future].items())
                progress(f"{count} of {len(cells)}: {named}")
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise
    return file.read()


def _prepare() -> None:
    prepare_environment()
    configure_torch()
