"""Asterix: gold comes in from the sides, to be had, and enemies, not to be met."""

from __future__ import annotations

from typing import Any

import numpy as np

from leap_rl.core.kernels import kernel
from leap_rl.envs.minatar.common import DOWN, LEFT, NOTHING, RIGHT, UP, begin, put, record, taken
from leap_rl.envs.minatar.mersenne import below, uniform

THINGS = ("player", "enemy", "trail", "gold")
ACTIONS = (NOTHING, LEFT, UP, RIGHT, DOWN)
GAME = record(
    "x y spawn_every spawn_in move_every move_in ramp_in ramps",
    # Of the rows 1 to 8, each of which has one thing at most.
    ("present", np.uint8, (8,)),
    ("gold", np.uint8, (8,)),
    ("column", np.int64, (8,)),
    ("move", np.int64, (8,)),
)
RAMP_EVERY = 100
_PLAYER, _ENEMY, _TRAIL, _GOLD = range(4)


@kernel
def start(games: Any, which: Any, seeds: Any) -> None:
    """Begin an episode in the games [K] with each one's seed."""
    for k in range(which.shape[0]):
        game = games[which[k]]
        begin(game, seeds[k])
        game.x = game.y = 5
        game.present[:] = 0
        game.spawn_every = game.spawn_in = 10
        game.move_every = game.move_in = 5
        game.ramp_in = RAMP_EVERY
        game.ramps = 0


@kernel
def step(games: Any, actions: Any, sticky: float, ramps: bool, rewards: Any, over: Any) -> None:
    """Take an action in each game; write the rewards [B], and whether that was the end [B]."""
    for b in range(games.shape[0]):
        game = games[b]
        action = taken(game, actions[b], sticky)
        if game.spawn_in == 0:
            _spawn(game)
            game.spawn_in = game.spawn_every
        if action == LEFT:
            game.x = max(0, game.x - 1)
        elif action == RIGHT:
            game.x = min(9, game.x + 1)
        elif action == UP:
            game.y = max(1, game.y - 1)
        elif action == DOWN:
            game.y = min(8, game.y + 1)
        reward, met = _meet(game)
        if game.move_in == 0:
            game.move_in = game.move_every
            for row in range(8):
                game.column[row] += game.move[row]
                if game.column[row] < 0 or game.column[row] > 9:
                    game.present[row] = 0
            more, met_later = _meet(game)
            reward += more
            met = met or met_later
        game.spawn_in -= 1
        game.move_in -= 1
        if ramps:
            _ramp(game)
        rewards[b], over[b] = reward, met


@kernel
def _spawn(game: Any) -> None:
    """Let something come in, if a row is free."""
    right = uniform(game) < 1 / 2
    gold = uniform(game) < 1 / 3
    free = 0
    for row in range(8):
        free += not game.present[row]
    if free == 0:
        return
    skip = below(game, free)
    for row in range(8):
        if not game.present[row]:
            if skip == 0:
                game.present[row] = 1
                game.gold[row] = gold
                game.column[row] = 0 if right else 9
                game.move[row] = 1 if right else -1
                return
            skip -= 1


@kernel
def _meet(game: Any) -> Any:
    """Return the reward of what the player stands on, and whether it is an enemy."""
    row = game.y - 1
    if not game.present[row] or game.column[row] != game.x:
        return 0.0, False
    if not game.gold[row]:
        return 0.0, True
    game.present[row] = 0
    return 1.0, False


@kernel
def _ramp(game: Any) -> None:
    """Make it faster now and then."""
    if game.spawn_every <= 1 and game.move_every <= 1:
        return
    if game.ramp_in >= 0:
        game.ramp_in -= 1
        return
    if game.move_every > 1 and game.ramps % 2 == 1:
        game.move_every -= 1
    if game.spawn_every > 1:
        game.spawn_every -= 1
    game.ramps += 1
    game.ramp_in = RAMP_EVERY


@kernel
def draw(games: Any, cells: Any) -> None:
    """Set the bits of what is where, uint16 [B, 10, 10]."""
    for b in range(games.shape[0]):
        game, here = games[b], cells[b]
        here[:] = 0
        put(here, game.y, game.x, _PLAYER)
        for row in range(8):
            if game.present[row]:
                column = game.column[row]
                put(here, row + 1, column, _GOLD if game.gold[row] else _ENEMY)
                put(here, row + 1, column - game.move[row], _TRAIL)
