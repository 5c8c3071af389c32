"""Freeway: the way up across eight lanes of cars, whose speeds change whenever one gets there."""

from __future__ import annotations

from typing import Any

import numpy as np

from leap_rl.core.kernels import kernel
from leap_rl.envs.minatar.common import DOWN, NOTHING, UP, begin, put, record, taken
from leap_rl.envs.minatar.mersenne import below, uniform

THINGS = ("chicken", "car", "speed1", "speed2", "speed3", "speed4", "speed5")
ACTIONS = (NOTHING, UP, DOWN)
GAME = record(
    "row walk_in end_in",
    # Of the cars in rows 1 to 8.
    ("column", np.int64, (8,)),
    ("move", np.int64, (8,)),
    ("move_every", np.int64, (8,)),
    ("move_in", np.int64, (8,)),
)
WALK_EVERY = 3
LENGTH = 2500
_COLUMN = 4
_CHICKEN, _CAR, _SPEED1 = range(3)


@kernel
def start(games: Any, which: Any, seeds: Any) -> None:
    """Begin an episode in the games [K] with each one's seed."""
    for k in range(which.shape[0]):
        game = games[which[k]]
        begin(game, seeds[k])
        _draw_speeds(game)
        game.column[:] = 0
        game.row = 9
        game.walk_in = WALK_EVERY
        game.end_in = LENGTH


@kernel
def _draw_speeds(game: Any) -> None:
    """Give each car a speed and a direction."""
    for lane in range(8):
        game.move_every[lane] = game.move_in[lane] = 1 + below(game, 5)
    for lane in range(8):
        game.move[lane] = 1 if uniform(game) > 0.5 else -1


@kernel
def step(games: Any, actions: Any, sticky: float, ramps: bool, rewards: Any, over: Any) -> None:
    """Take an action in each game; write the rewards [B], and whether that was the end [B]."""
    for b in range(games.shape[0]):
        game = games[b]
        action = taken(game, actions[b], sticky)
        rewards[b] = 0.0
        if game.walk_in == 0 and action in (UP, DOWN):
            game.walk_in = WALK_EVERY
            game.row = game.row - 1 if action == UP else min(9, game.row + 1)
        if game.row == 0:
            rewards[b] = 1.0
            _draw_speeds(game)
            game.row = 9
        for lane in range(8):
            _drive(game, lane)
        if game.walk_in > 0:
            game.walk_in -= 1
        game.end_in -= 1
        over[b] = game.end_in < 0


@kernel
def _drive(game: Any, lane: int) -> None:
    """Move a car when it is time; the chicken that it hits starts again."""
    if game.column[lane] == _COLUMN and lane + 1 == game.row:
        game.row = 9
    if game.move_in[lane] > 0:
        game.move_in[lane] -= 1
        return
    game.move_in[lane] = game.move_every[lane]
    game.column[lane] = (game.column[lane] + game.move[lane]) % 10
    if game.column[lane] == _COLUMN and lane + 1 == game.row:
        game.row = 9


@kernel
def draw(games: Any, cells: Any) -> None:
    """Set the bits of what is where, uint16 [B, 10, 10]."""
    for b in range(games.shape[0]):
        game, here = games[b], cells[b]
        here[:] = 0
        put(here, game.row, _COLUMN, _CHICKEN)
        for lane in range(8):
            column = game.column[lane]
            put(here, lane + 1, column, _CAR)
            behind = (column - game.move[lane]) % 10
            put(here, lane + 1, behind, _SPEED1 + game.move_every[lane] - 1)
