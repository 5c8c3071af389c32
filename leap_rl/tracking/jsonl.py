"""`metrics.jsonl`: one row a line; a resume reads it, and no mirror, to know what was logged."""

from __future__ import annotations

import json
import os
from pathlib import Path

from leap_rl.core import plain_json
from leap_rl.core.regular_file import naming, read_regular
from leap_rl.tracking.metrics import Axis, Row
from leap_rl.tracking.sink import Sink


class JsonlSink(Sink):
    """Appends rows to a file, each flushed to the operating system before `write` returns.

    Opening removes a torn last line of a killed process, and all rows after the first `keep_rows`.
    """

    name = "metrics.jsonl"

    def __init__(self, path: Path, *, keep_rows: int | None = None) -> None:
        if path.exists():
            whole = read_regular(path).split(b"\n")[:-1]
            if whole and _parse(whole[-1]) is None:
                whole.pop()
            os.truncate(path, sum(len(line) + 1 for line in whole[:keep_rows]))
        self._path = path
        self._file = open(path, "ab", buffering=0)  # noqa: SIM115

    def write(self, row: Row, axis: Axis) -> None:
        line = (json.dumps(dict(row), allow_nan=False) + "\n").encode()
        with naming(self._path):
            while line:  # a disk that becomes full writes a part, then fails
                line = line[self._file.write(line) :]

    def close(self) -> None:
        self._file.close()


def read_rows(path: Path) -> list[dict[str, float | int]]:
    """Return all whole rows of a file, none if it is missing; ValueError names a damaged line."""
    if not path.exists():
        return []
    # After the last newline there is nothing, or a line that is being written or was torn.
    whole = read_regular(path).split(b"\n")[:-1]
    rows = []
    for number, line in enumerate(whole, start=1):
        row = _parse(line)
        if row is not None:
            rows.append(row)
        elif number < len(whole):
            raise ValueError(
                f"{path}, line {number}: not a JSON object of numbers; the file is damaged: delete "
                "it, and a resume writes it again from the checkpoints"
            )
    return rows


def _parse(line: bytes) -> dict[str, float | int] | None:
    try:
        row = plain_json.load(line)
    except ValueError:
        return None
    is_row = isinstance(row, dict) and all(type(one) in (int, float) for one in row.values())
    return row if is_row else None
