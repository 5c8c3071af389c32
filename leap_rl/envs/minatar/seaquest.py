"""Seaquest: a submarine shoots fish and other submarines, and brings divers up before its oxygen
ends."""

from __future__ import annotations

from typing import Any

import numpy as np

from leap_rl.core.kernels import kernel
from leap_rl.envs.minatar.common import (
    DOWN,
    FIRE,
    LEFT,
    NOTHING,
    RIGHT,
    UP,
    begin,
    below,
    put,
    record,
    taken,
    uniform,
)

THINGS = (
    "sub_front",
    "sub_back",
    "friendly_bullet",
    "trail",
    "enemy_bullet",
    "enemy_fish",
    "enemy_sub",
    "oxygen_guage",
    "diver_guage",
    "diver",
)
ACTIONS = (NOTHING, LEFT, UP, RIGHT, DOWN, FIRE)
COLUMN, ROW, MOVE, MOVE_IN, SHOT_IN = range(5)
NUMBERS = 5
"""Of a thing: where it is, -1 or 1 for where it goes, and agent steps until it moves or shoots;
what it does not do is 0."""

MOST = 128
"""Things in a list. One comes each agent step at most, and is beyond the edge within 60."""

LIST = np.dtype([("things", np.int64, (MOST, NUMBERS)), ("count", np.int64)])
"""What moves sideways in Seaquest. Things are removed by value, as the authors' package does it:
of two equal things the first in the list goes, and the other one, which is being moved, is met
again. Whole episodes depend on it."""

# heading is -1 or 1; aboard counts the divers.
GAME = record(
    "x y heading oxygen aboard shot_in enemy_every enemy_in diver_in move_every ramps",
    ("surfaced", np.bool_),
    ("bullets", LIST),
    ("enemy_bullets", LIST),
    ("fish", LIST),
    ("subs", LIST),
    ("divers", LIST),
)
OXYGEN = 200
SHOT_EVERY = 5
ENEMY_SHOT_EVERY = 10
DIVER_EVERY = 30
DIVER_MOVE_EVERY = 5
FULL = 6
FASTEST = 2
_FRONT, _BACK, _BULLET, _TRAIL, _ENEMY_BULLET, _FISH, _SUB, _OXYGEN, _ABOARD, _DIVER = range(10)


@kernel
def start(games: Any, which: Any, seeds: Any) -> None:
    """Begin an episode in the games [K] with each one's seed."""
    for k in range(which.shape[0]):
        game = games[which[k]]
        begin(game, seeds[k])
        game.x, game.y, game.heading = 5, 0, -1
        game.oxygen = OXYGEN
        game.aboard = 0
        game.surfaced = True
        game.shot_in = 0
        game.enemy_every = game.enemy_in = 20
        game.diver_in = DIVER_EVERY
        game.move_every = 5
        game.ramps = 0
        game.bullets.count = game.enemy_bullets.count = 0
        game.fish.count = game.subs.count = game.divers.count = 0


@kernel
def step(games: Any, actions: Any, sticky: float, ramps: bool, rewards: Any, over: Any) -> None:
    """Take an action in each game; write the rewards [B], and whether that was the end [B]."""
    for b in range(games.shape[0]):
        game = games[b]
        action = taken(game, actions[b], sticky)
        if game.enemy_in == 0:
            _spawn_enemy(game)
            game.enemy_in = game.enemy_every
        if game.diver_in == 0:
            move = 1 if uniform(game) < 1 / 2 else -1
            column, row = 0 if move > 0 else 9, 1 + below(game, 8)
            _add(game.divers, column, row, move, DIVER_MOVE_EVERY)
            game.diver_in = DIVER_EVERY
        _obey(game, action)
        reward = _move_bullets(game)
        _move_divers(game)
        more, hit = _move_subs(game)
        reward += more
        hit = _move_enemy_bullets(game) or hit
        more, bitten = _move_fish(game)
        reward += more
        game.enemy_in = max(0, game.enemy_in - 1)
        game.diver_in = max(0, game.diver_in - 1)
        game.shot_in = max(0, game.shot_in - 1)
        more, drowned = _breathe(game, ramps)
        rewards[b], over[b] = reward + more, hit or bitten or drowned


@kernel
def _spawn_enemy(game: Any) -> None:
    """Let a fish or a submarine come in, unless another one of its row goes the other way."""
    move = 1 if uniform(game) < 1 / 2 else -1
    is_sub = uniform(game) < 1 / 3
    row = 1 + below(game, 8)
    for swimmers in (game.subs, game.fish):
        for index in range(swimmers.count):
            if swimmers.things[index, ROW] == row and swimmers.things[index, MOVE] != move:
                return
    column = 0 if move > 0 else 9
    if is_sub:
        _add(game.subs, column, row, move, game.move_every)
        game.subs.things[game.subs.count - 1, SHOT_IN] = ENEMY_SHOT_EVERY
    else:
        _add(game.fish, column, row, move, game.move_every)


@kernel
def _obey(game: Any, action: int) -> None:
    if action == FIRE:
        if game.shot_in == 0:
            _add(game.bullets, game.x, game.y, game.heading, 0)
            game.shot_in = SHOT_EVERY
    elif action == LEFT:
        game.x = max(0, game.x - 1)
        game.heading = -1
    elif action == RIGHT:
        game.x = min(9, game.x + 1)
        game.heading = 1
    elif action == UP:
        game.y = max(0, game.y - 1)
    elif action == DOWN:
        game.y = min(8, game.y + 1)


@kernel
def _move_bullets(game: Any) -> float:
    """Move the player's bullets; return the reward for what they hit."""
    reward = 0.0
    for index in range(game.bullets.count - 1, -1, -1):
        bullet = game.bullets.things[index]
        bullet[COLUMN] += bullet[MOVE]
        gone = bullet[COLUMN] < 0 or bullet[COLUMN] > 9
        if not gone:
            fish = _found(game.fish, bullet[COLUMN], bullet[ROW])
            sub = _found(game.subs, bullet[COLUMN], bullet[ROW])
            gone = fish >= 0 or sub >= 0
            reward += gone
            if fish >= 0:
                _remove(game.fish, fish)
            elif sub >= 0:
                _remove(game.subs, sub)
        if gone:
            _remove(game.bullets, index)
    return reward


@kernel
def _move_divers(game: Any) -> None:
    """Move the divers; those that the player meets come aboard while there is room."""
    for index in range(game.divers.count - 1, -1, -1):
        diver = game.divers.things[index]
        saved = _is_at_player(game, diver) and game.aboard < FULL
        gone = False
        if not saved:
            if diver[MOVE_IN] > 0:
                diver[MOVE_IN] -= 1
            else:
                diver[MOVE_IN] = DIVER_MOVE_EVERY
                diver[COLUMN] += diver[MOVE]
                gone = diver[COLUMN] < 0 or diver[COLUMN] > 9
                saved = _is_at_player(game, diver) and game.aboard < FULL
        if saved or gone:
            _remove(game.divers, index)
            game.aboard += saved


@kernel
def _is_at_player(game: Any, thing: Any) -> Any:
    return thing[COLUMN] == game.x and thing[ROW] == game.y


@kernel
def _move_subs(game: Any) -> Any:
    """Move the other submarines and let them shoot; return the reward, and whether one met the
    player."""
    reward, hit = 0.0, False
    for index in range(game.subs.count - 1, -1, -1):
        sub = game.subs.things[index]
        struck, met = _move_enemy(game, sub)
        hit = hit or met
        column, row, move, shot_in = sub[COLUMN], sub[ROW], sub[MOVE], sub[SHOT_IN]
        place = index
        if struck or column < 0 or column > 9:
            reward += struck
            # Of two alike the other one goes; this one then is a place further down.
            place = -1 if _remove(game.subs, index) == index else index - 1
        if shot_in == 0:
            _add(game.enemy_bullets, column, row, move, 0)
        if place >= 0:
            game.subs.things[place, SHOT_IN] = shot_in - 1 if shot_in > 0 else ENEMY_SHOT_EVERY
    return reward, hit


@kernel
def _move_fish(game: Any) -> Any:
    """Move the fish; return the reward, and whether one met the player."""
    reward, hit = 0.0, False
    for index in range(game.fish.count - 1, -1, -1):
        fish = game.fish.things[index]
        struck, met = _move_enemy(game, fish)
        hit = hit or met
        if struck or fish[COLUMN] < 0 or fish[COLUMN] > 9:
            reward += struck
            _remove(game.fish, index)
    return reward, hit


@kernel
def _move_enemy(game: Any, enemy: Any) -> Any:
    """Move an enemy if it is time; return whether a bullet struck it, and if it met the player.

    The bullet is gone then.
    """
    met = _is_at_player(game, enemy)
    if enemy[MOVE_IN] > 0:
        enemy[MOVE_IN] -= 1
        return False, met
    enemy[MOVE_IN] = game.move_every
    enemy[COLUMN] += enemy[MOVE]
    if _is_at_player(game, enemy):
        return False, True
    if enemy[COLUMN] < 0 or enemy[COLUMN] > 9:
        return False, met
    bullet = _found(game.bullets, enemy[COLUMN], enemy[ROW])
    if bullet < 0:
        return False, met
    _remove(game.bullets, bullet)
    return True, met


@kernel
def _move_enemy_bullets(game: Any) -> bool:
    """Move the other submarines' bullets; return whether one met the player."""
    hit = False
    for index in range(game.enemy_bullets.count - 1, -1, -1):
        bullet = game.enemy_bullets.things[index]
        hit = hit or _is_at_player(game, bullet)
        bullet[COLUMN] += bullet[MOVE]
        hit = hit or _is_at_player(game, bullet)
        if bullet[COLUMN] < 0 or bullet[COLUMN] > 9:
            _remove(game.enemy_bullets, index)
    return hit


@kernel
def _breathe(game: Any, ramps: bool) -> Any:
    """Use oxygen up, or surface; return the reward, and whether that ends the game."""
    ended = game.oxygen <= 0
    if game.y > 0:
        game.oxygen -= 1
        game.surfaced = False
        return 0.0, ended
    if game.surfaced:
        return 0.0, ended
    if game.aboard == 0:
        return 0.0, True
    game.surfaced = True
    reward = 0.0
    if game.aboard == FULL:
        reward += game.oxygen * 10 // OXYGEN
        game.aboard = 0
    # Below 0 after all six were brought up: the authors' package does so.
    game.aboard -= 1
    game.oxygen = OXYGEN
    if ramps and (game.enemy_every > 1 or game.move_every > FASTEST):
        if game.move_every > FASTEST and game.ramps % 2 == 1:
            game.move_every -= 1
        if game.enemy_every > 1:
            game.enemy_every -= 1
        game.ramps += 1
    return reward, ended


@kernel
def draw(games: Any, cells: Any) -> None:
    """Set the bits of what is where, uint16 [B, 10, 10]."""
    for b in range(games.shape[0]):
        game, here = games[b], cells[b]
        here[:] = 0
        put(here, game.y, game.x, _FRONT)
        put(here, game.y, game.x - game.heading, _BACK)
        for column in range(max(0, game.oxygen) * 10 // OXYGEN):
            put(here, 9, column, _OXYGEN)
        for column in range(9 - game.aboard, 9):
            put(here, 9, column, _ABOARD)
        _draw_all(here, game.bullets, _BULLET, False)
        _draw_all(here, game.enemy_bullets, _ENEMY_BULLET, False)
        _draw_all(here, game.fish, _FISH, True)
        _draw_all(here, game.subs, _SUB, True)
        _draw_all(here, game.divers, _DIVER, True)


@kernel
def _draw_all(cells: Any, swimmers: Any, thing: int, trail: bool) -> None:
    """Show all things of a list, and behind each its trail."""
    for index in range(swimmers.count):
        column, row = swimmers.things[index, COLUMN], swimmers.things[index, ROW]
        put(cells, row, column, thing)
        if trail:
            put(cells, row, column - swimmers.things[index, MOVE], _TRAIL)


@kernel
def _add(swimmers: Any, column: int, row: int, move: int, move_in: int) -> None:
    """Append a thing that does not shoot."""
    assert swimmers.count < MOST
    thing = swimmers.things[swimmers.count]
    thing[COLUMN], thing[ROW], thing[MOVE] = column, row, move
    thing[MOVE_IN], thing[SHOT_IN] = move_in, 0
    swimmers.count += 1


@kernel
def _remove(swimmers: Any, index: int) -> int:
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
def _found(swimmers: Any, column: int, row: int) -> int:
    """Return the index of the first thing in a cell, or -1."""
    for index in range(swimmers.count):
        if swimmers.things[index, COLUMN] == column and swimmers.things[index, ROW] == row:
            return index
    return -1
