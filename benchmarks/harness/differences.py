"""Whether two runs ended with the same bits and the same rows."""

from __future__ import annotations

from typing import Any

from leap_rl.storage.locked_folder import RunFolderError
from leap_rl.storage.run_folder import RunFolder

WALL_CLOCK = ("time/", "throughput/")
"""Prefixes of the metrics that differ between any two runs."""


def differences(one: RunFolder, two: RunFolder) -> list[str]:
    """Return one line a difference; an empty list if there is none.

    Compared are the SHA-256 sums of every checkpoint's files, the rows without those of the wall
    clock, which tasks filled the slots, and the episodes.
    """
    try:
        last, other = one.latest(), two.latest()
        if last is None or last != other:
            return [f"one run has {last} meta-steps, the other {other}"]
        return [line for number in range(last + 1) for line in _checkpoint(one, two, number)]
    except RunFolderError as error:
        return [str(error)]


def _checkpoint(one: RunFolder, two: RunFolder, number: int) -> list[str]:
    _, state = one.read_checkpoint(number)
    _, other = two.read_checkpoint(number)
    lines = [
        f"checkpoint {number}: {name} is {digest[:12]} in one run and "
        f"{other['sha256'].get(name, 'missing')[:12]} in the other"
        for name, digest in state["sha256"].items()
        if digest != other["sha256"].get(name)
    ]
    kinds = {"rows": _rows, "tasks": _tasks}
    lines += [
        f"checkpoint {number}: the {name} differ"
        for name, of in kinds.items()
        if of(state) != of(other)
    ]
    if number > 0 and _episodes(one, number - 1) != _episodes(two, number - 1):
        lines.append(f"checkpoint {number}: the episodes differ")
    return lines


def _rows(state: dict[str, Any]) -> list[dict[str, Any]]:
    return [
        {name: value for name, value in row["values"].items() if not name.startswith(WALL_CLOCK)}
        for row in state["rows"]
    ]


def _tasks(state: dict[str, Any]) -> list[tuple[str, int]]:
    return [(slot["game"], slot["seed"]) for slot in state.get("slots", ())]


def _episodes(folder: RunFolder, round_number: int) -> dict[str, list[Any]]:
    import pyarrow.parquet as pq

    columns: dict[str, list[Any]] = pq.read_table(folder.curves(round_number)).to_pydict()
    return columns
