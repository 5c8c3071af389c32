"""What MinAtar's games have in common."""

from __future__ import annotations

from typing import Any

import numpy as np

from leap_rl.core.kernels import kernel
from leap_rl.envs.minatar import mersenne

SIZE = 10
"""Rows and columns, in cells."""

NOTHING, LEFT, UP, RIGHT, DOWN, FIRE = range(6)
"""The six actions."""


def record(numbers: str, *fields: tuple[Any, ...]) -> np.dtype[Any]:
    """Return the type of a game's record: what any game has, named int64, and other fields."""
    own = [("last_action", np.int64), *((name, np.int64) for name in numbers.split())]
    return np.dtype([*mersenne.FIELDS, *own, *fields], align=True)


@kernel
def begin(game: Any, seed: int) -> None:
    """Begin an episode, which depends on its seed and its actions alone."""
    mersenne.seed(game, seed)
    game.last_action = 0


@kernel
def taken(game: Any, action: int, sticky: float) -> Any:
    """Return the action that is taken: by chance it is the last one again."""
    if mersenne.uniform(game) < sticky:
        return game.last_action
    game.last_action = action
    return action


@kernel
def put(cells: Any, row: int, column: int, thing: int) -> None:
    """Show a thing in a cell of [10, 10], where its bit is set; beyond the edge there is none."""
    if 0 <= column <= 9:
        cells[row, column] |= np.uint16(1 << thing)
