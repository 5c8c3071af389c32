"""SpaceInvaders: aliens come down from side to side, shoot, and are shot for a reward."""

from __future__ import annotations

from typing import Any

import numpy as np

from leap_rl.core.kernels import kernel
from leap_rl.envs.minatar.common import FIRE, LEFT, NOTHING, RIGHT, begin, put, record, taken

THINGS = ("cannon", "alien", "alien_left", "alien_right", "friendly_bullet", "enemy_bullet")
ACTIONS = (NOTHING, LEFT, RIGHT, FIRE)
GAME = record(
    "cannon move move_every move_in enemy_shot_in shot_in",
    ("aliens", np.uint8, (10, 10)),
    ("bullets", np.uint8, (10, 10)),
    ("enemy_bullets", np.uint8, (10, 10)),
)
SHOT_EVERY = 5
ENEMY_SHOT_EVERY = 10
MOVE_EVERY = 12
FASTEST = 6
_CANNON, _ALIEN, _ALIEN_LEFT, _ALIEN_RIGHT, _BULLET, _ENEMY_BULLET = range(6)


@kernel
def start(games: Any, which: Any, seeds: Any) -> None:
    """Begin an episode in the games [K] with each one's seed."""
    for k in range(which.shape[0]):
        game = games[which[k]]
        begin(game, seeds[k])
        game.cannon = 5
        game.bullets[:] = 0
        game.enemy_bullets[:] = 0
        game.aliens[:] = 0
        game.aliens[0:4, 2:8] = 1
        game.move = -1
        game.move_every = game.move_in = MOVE_EVERY
        game.enemy_shot_in = ENEMY_SHOT_EVERY
        game.shot_in = 0


@kernel
def step(games: Any, actions: Any, sticky: float, ramps: bool, rewards: Any, over: Any) -> None:
    """Take an action in each game; write the rewards [B], and whether that was the end [B]."""
    for b in range(games.shape[0]):
        game = games[b]
        action = taken(game, actions[b], sticky)
        if action == FIRE and game.shot_in == 0:
            game.bullets[9, game.cannon] = 1
            game.shot_in = SHOT_EVERY
        elif action == LEFT:
            game.cannon = max(0, game.cannon - 1)
        elif action == RIGHT:
            game.cannon = min(9, game.cannon + 1)
        _fly(game)
        hit = game.enemy_bullets[9, game.cannon] or game.aliens[9, game.cannon]
        if game.move_in == 0:
            hit = _advance(game) or hit
        if game.enemy_shot_in == 0:
            game.enemy_shot_in = ENEMY_SHOT_EVERY
            _shoot(game)
        rewards[b] = _strike(game)
        if game.shot_in > 0:
            game.shot_in -= 1
        game.move_in -= 1
        game.enemy_shot_in -= 1
        if not game.aliens.any():
            if ramps and game.move_every > FASTEST:
                game.move_every -= 1
            game.aliens[0:4, 2:8] = 1
        over[b] = hit


@kernel
def _fly(game: Any) -> None:
    """Move all bullets by one row."""
    for row in range(9):
        game.bullets[row] = game.bullets[row + 1]
        game.enemy_bullets[9 - row] = game.enemy_bullets[8 - row]
    game.bullets[9] = 0
    game.enemy_bullets[0] = 0


@kernel
def _advance(game: Any) -> Any:
    """Move the aliens, sideways or at the edge down; return whether that ends the game."""
    aliens = game.aliens
    count = 0
    for row in range(10):
        for column in range(10):
            count += aliens[row, column]
    game.move_in = min(count, game.move_every)
    ended = False
    if aliens[:, 0 if game.move < 0 else 9].any():
        game.move = -game.move
        lowest = aliens[9].copy()
        ended = lowest.any()
        for row in range(9, 0, -1):
            aliens[row] = aliens[row - 1]
        aliens[0] = lowest  # seen in an episode's last observation alone
    else:
        for row in range(10):
            if game.move < 0:
                for column in range(9):
                    aliens[row, column] = aliens[row, column + 1]
                aliens[row, 9] = 0
            else:
                for column in range(9, 0, -1):
                    aliens[row, column] = aliens[row, column - 1]
                aliens[row, 0] = 0
    return ended or aliens[9, game.cannon]


@kernel
def _shoot(game: Any) -> None:
    """Let the lowest alien of the column that is nearest to the cannon shoot; of two the left."""
    for distance in range(10):
        for column in (game.cannon - distance, game.cannon + distance):
            if 0 <= column <= 9:
                for row in range(9, -1, -1):
                    if game.aliens[row, column]:
                        game.enemy_bullets[row, column] = 1
                        return


@kernel
def _strike(game: Any) -> float:
    """Remove the aliens that bullets are at, and these; return how many."""
    struck = 0.0
    for row in range(10):
        for column in range(10):
            if game.aliens[row, column] and game.bullets[row, column]:
                game.aliens[row, column] = game.bullets[row, column] = 0
                struck += 1.0
    return struck


@kernel
def draw(games: Any, cells: Any) -> None:
    """Set the bits of what is where, uint16 [B, 10, 10]."""
    for b in range(games.shape[0]):
        game, here = games[b], cells[b]
        here[:] = 0
        put(here, 9, game.cannon, _CANNON)
        heading = _ALIEN_LEFT if game.move < 0 else _ALIEN_RIGHT
        for row in range(10):
            for column in range(10):
                if game.aliens[row, column]:
                    put(here, row, column, _ALIEN)
                    put(here, row, column, heading)
                if game.bullets[row, column]:
                    put(here, row, column, _BULLET)
                if game.enemy_bullets[row, column]:
                    put(here, row, column, _ENEMY_BULLET)
