"""How MinAtar's games are shown: in their own channels, or painted in common colors.

MinAtar shows a game as 10 × 10 cells with a plane of booleans for each kind of thing. How many
planes there are, and what they mean, differs from game to game: the second is the ball in Breakout
and a car in Freeway. An encoder that games share can make little of that, so that `palette` paints
all of them as pictures in which things of the same role have the same color.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from leap_rl.core.kernels import kernel

COLORS: dict[str, tuple[int, int, int]] = {
    # What shows which way something goes, or how fast.
    "trail": (96, 96, 96),
    "speed1": (64, 0, 0),
    "speed2": (96, 0, 0),
    "speed3": (128, 0, 0),
    "speed4": (160, 0, 0),
    "speed5": (192, 0, 0),
    # What is to be avoided, or shot.
    "enemy": (255, 0, 0),
    "car": (255, 0, 0),
    "alien": (255, 0, 0),
    "alien_left": (255, 64, 0),
    "alien_right": (255, 0, 64),
    "enemy_fish": (255, 0, 0),
    "enemy_sub": (255, 64, 64),
    "enemy_bullet": (255, 0, 255),
    # What is to be had, or hit.
    "gold": (255, 255, 0),
    "brick": (255, 255, 0),
    "diver": (255, 255, 0),
    "friendly_bullet": (0, 255, 255),
    "ball": (255, 255, 255),
    # The player, and what is left to him.
    "oxygen_guage": (0, 0, 255),
    "diver_guage": (0, 128, 255),
    "sub_back": (0, 128, 0),
    "player": (0, 255, 0),
    "paddle": (0, 255, 0),
    "chicken": (0, 255, 0),
    "sub_front": (0, 255, 0),
    "cannon": (0, 255, 0),
}
"""The color of each of MinAtar's kinds of things. What comes later covers what comes earlier."""

ORIENTATIONS = range(8)
"""Of a square: q quarter turns counterclockwise are q, and 4 + q if it is mirrored, left for right,
before that."""


def turned(cells: NDArray[np.uint16], orientation: int) -> NDArray[np.uint16]:
    """Return a view of square cells [B, N, N] in one of `ORIENTATIONS`."""
    mirrored = cells[:, :, ::-1] if orientation >= 4 else cells
    return np.rot90(mirrored, orientation % 4, axes=(1, 2))


def cell_table(things: Sequence[str], *, palette: bool) -> NDArray[np.uint8]:
    """Return how a cell looks, uint8 [2**C, K], by the bits of what is in it of C kinds of things.

    With `palette` in `COLORS` on black, so K = 3; otherwise 255 in the channel of each kind, K = C.
    """
    bits = np.arange(2 ** len(things))[:, None] >> np.arange(len(things)) & 1
    if not palette:
        return (bits * 255).astype(np.uint8)
    table = np.zeros((len(bits), 3), dtype=np.uint8)
    for name, color in COLORS.items():
        if name in things:
            table[bits[:, things.index(name)] == 1] = color
    return table


@kernel
def show(cells: Any, table: Any, observations: Any) -> None:
    """Write what cells [B, 10, 10] look like into the corner of uint8 [B, H, W, C]."""
    for b in range(cells.shape[0]):
        for row in range(cells.shape[1]):
            for column in range(cells.shape[2]):
                look = table[cells[b, row, column]]
                for k in range(look.shape[0]):
                    observations[b, row, column, k] = look[k]
