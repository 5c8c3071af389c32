"""The lists of what moves sideways in Seaquest: rows of numbers in an array, and how many.

A thing is removed by its value, as the authors' package does it: where two are alike the first in
the list goes, and the other one, which is under way, is met again. Whole episodes depend on it.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from leap_rl.compute.kernels import kernel

COLUMN, ROW, MOVE, MOVE_IN, SHOT_IN = range(5)
NUMBERS = 5
"""Of a thing: where it is, -1 or 1 for where it goes, and agent steps until it moves or shoots;
what it does not do is 0."""

MOST = 128
"""Things in a list. One comes each agent step at most, and is beyond the edge within 60."""


def fields(name: str) -> list[tuple[Any, ...]]:
    """Return what a record needs for a list of a name."""
    return [(name, np.int64, (MOST, NUMBERS)), (f"{name}_count", np.int64)]


@kernel
def add(things: Any, count: int, column: int, row: int, move: int, move_in: int) -> int:
    """Append a thing that does not shoot; return how many there are."""
    assert count < MOST
    thing = things[count]
    thing[COLUMN], thing[ROW], thing[MOVE] = column, row, move
    thing[MOVE_IN], thing[SHOT_IN] = move_in, 0
    return count + 1


@kernel
def remove(things: Any, count: int, index: int) -> int:
    """Remove the first thing that is like the one at `index`; return where it was."""
    first = 0
    while not _alike(things[first], things[index]):
        first += 1
    for place in range(first, count - 1):
        things[place] = things[place + 1]
    return first


@kernel
def _alike(one: Any, other: Any) -> Any:
    same = True
    for number in range(5):
        same = same and one[number] == other[number]
    return same


@kernel
def found(things: Any, count: int, column: int, row: int) -> int:
    """Return the index of the first thing in a cell, or -1."""
    for index in range(count):
        if things[index, COLUMN] == column and things[index, ROW] == row:
            return index
    return -1
