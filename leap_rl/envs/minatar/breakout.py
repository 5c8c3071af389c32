"""Breakout: a ball is kept up with a paddle, and breaks the bricks of three rows for a reward."""

from __future__ import annotations

from typing import Any

import numpy as np

from leap_rl.core.kernels import kernel
from leap_rl.envs.minatar.common import LEFT, NOTHING, RIGHT, begin, below, put, record, taken

THINGS = ("paddle", "ball", "trail", "brick")
ACTIONS = (NOTHING, LEFT, RIGHT)
# move_x and move_y are the ball's in each agent step, -1 or 1.
GAME = record(
    "paddle x y move_x move_y last_x last_y",
    ("struck", np.bool_),  # the ball went through a brick's place in the last agent step
    ("bricks", np.uint8, (3, 10)),  # of rows 1 to 3
)
_PADDLE, _BALL, _TRAIL, _BRICK = range(4)


@kernel
def start(games: Any, which: Any, seeds: Any) -> None:
    """Begin an episode in the games [K] with each one's seed."""
    for k in range(which.shape[0]):
        game = games[which[k]]
        begin(game, seeds[k])
        from_right = below(game, 2) == 1
        game.x = game.last_x = 9 if from_right else 0
        game.y = game.last_y = 3
        game.move_x = -1 if from_right else 1
        game.move_y = 1
        game.paddle = 4
        game.struck = False
        game.bricks[:] = 1


@kernel
def step(games: Any, actions: Any, sticky: float, ramps: bool, rewards: Any, over: Any) -> None:
    """Take an action in each game; write the rewards [B], and whether that was the end [B]."""
    for b in range(games.shape[0]):
        game = games[b]
        action = taken(game, actions[b], sticky)
        if action == LEFT:
            game.paddle = max(0, game.paddle - 1)
        elif action == RIGHT:
            game.paddle = min(9, game.paddle + 1)
        rewards[b], over[b] = _move_ball(game)


@kernel
def _move_ball(game: Any) -> Any:
    """Return the reward, and whether the ball was lost."""
    # A lost ball stays in the last row, however often a game that is over is stepped.
    x, y = game.x + game.move_x, min(9, game.y + game.move_y)
    before, game.last_x, game.last_y = game.x, game.x, game.y
    if x < 0 or x > 9:
        x = before
        game.move_x = -game.move_x
    reward, striking, lost = 0.0, False, False
    if y < 0:
        y = 0
        game.move_y = 1
    elif 1 <= y <= 3 and game.bricks[y - 1, x]:
        striking = True
        if not game.struck:
            reward = 1.0
            game.bricks[y - 1, x] = 0
            y = game.last_y
            game.move_y = -game.move_y
    elif y == 9:
        if not game.bricks.any():
            game.bricks[:] = 1
        if before == game.paddle:
            game.move_y = -1
            y = game.last_y
        elif x == game.paddle:
            game.move_x = -game.move_x
            game.move_y = -1
            y = game.last_y
        else:
            lost = True
    game.struck = striking
    game.x, game.y = x, y
    return reward, lost


@kernel
def draw(games: Any, cells: Any) -> None:
    """Set the bits of what is where, uint16 [B, 10, 10]."""
    for b in range(games.shape[0]):
        game, here = games[b], cells[b]
        here[:] = 0
        put(here, game.y, game.x, _BALL)
        put(here, 9, game.paddle, _PADDLE)
        put(here, game.last_y, game.last_x, _TRAIL)
        for row in range(3):
            for column in range(10):
                if game.bricks[row, column]:
                    put(here, row + 1, column, _BRICK)
