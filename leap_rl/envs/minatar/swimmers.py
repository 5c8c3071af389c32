"""The lists of what moves sideways in Seaquest: rows of numbers in an array, and how many.

A thing is removed by its value, as the authors' package does it: where two are alike the first in
the list goes, and the other one, which is under way, is met again. Whole episodes depend on it.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from leap_rl.core.kernels import kernel

COLUMN, ROW, MOVE, MOVE_IN, SHOT_IN = range(5)
NUMBERS = 5
"""Of a thing: where it is, -1 or 1 for where it goes, and agent steps until it moves or shoots;
what it does not do is 0."""

MOST = 128
"""Things in a list. One comes each agent step at most, and is beyond the edge within 60."""


LIST = np.dtype([("things", np.int64, (MOST, NUMBERS)), ("count", np.int64)])


@kernel
def add(swimmers: Any, column: int, row: int, move: int, move_in: int) -> None:
    """Append a thing that does not shoot."""
    assert swimmers.count < MOST
    thing = swimmers.things[swimmers.count]
    thing[COLUMN], thing[ROW], thing[MOVE] = column, row, move
    thing[MOVE_IN], thing[SHOT_IN] = move_in, 0
    swimmers.count += 1


@kernel
def remove(swimmers: Any, index: int) -> int:
    """Remove the first thing that is like the one at `index`; return where it was."""
    things, first = swimmers.things, 0
    while not _alike(things[first], things[index]):
        first += 1
    swimmers.count -= 1
    for place in range(first, swimmers.count):
        things[place] = things[place + 1]
    return first


@kernel
def _alike(one: Any, other: Any) -> Any:
    same = True
    for number in range(5):
        same = same and one[number] == other[number]
    return same


@kernel
def found(swimmers: Any, column: int, row: int) -> int:
    """Return the index of the first thing in a cell, or -1."""
    for index in range(swimmers.count):
        if swimmers.things[index, COLUMN] == column and swimmers.things[index, ROW] == row:
            return index
    return -1
