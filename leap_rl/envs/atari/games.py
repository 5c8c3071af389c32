"""Games by name, and the pools that the paper draws from.

The Atari games are the 62 of OpenAI Gym's list, complete since its version 0.12.1 of March 2019.
27 of them have at most 10 actions; holding out Breakout and SpaceInvaders leaves a pretraining
pool of 25. (The paper's "27 games" can be read as 27 after the hold-out; no list of Gym's gives
that. Gym 0.10 and 0.11 lack Adventure and Defender, of 18 actions, which changes no pool but the
large ones.)
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from difflib import get_close_matches
from itertools import chain

from leap_rl.envs.atari.modes import TABLE, GameMode, difficulties, find_mode, modes
from leap_rl.envs.names import join_name, split_name

ACTION_COUNTS: dict[str, int] = {game: actions for game, (actions, *_) in TABLE.items()}
"""The actions of each Atari game: ALE's minimal action set."""

_MOST_PRETRAINING_ACTIONS = 10
_HELD_OUT = ("breakout", "space_invaders")

POOLS: dict[str, tuple[str, ...]] = {
    # Paper, appendix "Experiment details: Atari": at most 10 actions, two games held out.
    "pretraining": tuple(
        game
        for game, count in ACTION_COUNTS.items()
        if count <= _MOST_PRETRAINING_ACTIONS and game not in _HELD_OUT
    ),
    "held_out": _HELD_OUT,
    "large_action": tuple(
        game for game, count in ACTION_COUNTS.items() if count > _MOST_PRETRAINING_ACTIONS
    ),
    # The paper's table of evaluation environments, in its order.
    "paper": (
        "air_raid",
        "up_n_down",
        "wizard_of_wor",
        "breakout",
        "space_invaders",
        "asteroids",
        "alien",
        "gravitar",
        "road_runner",
    ),
    "all": tuple(ACTION_COUNTS),
}
"""Lists of games that have a name of their own."""

MODES_OF = "modes:"
"""Before a game's name: the pool of all its modes, at its default difficulty."""

_GAMES_BY_KEY = {game.replace("_", ""): game for game in ACTION_COUNTS}


def resolve_games(games: Sequence[str]) -> tuple[str, ...]:
    """Turn a list of games and pools into a list of games, pools spelled out, in the order given.

    Args:
        games: names of games (`up_n_down`; Gymnasium's `UpNDown` and `ALE/UpNDown-v5` will do), of
            their modes (`pong@mode=1`) and of pools (a key of `POOLS`, or `modes:pong`).

    Raises:
        ValueError: a name is unknown, a game comes twice, or there is none.
    """
    if not games:
        raise ValueError("task.games = []: name at least one game or pool")
    resolved = tuple(chain.from_iterable(_resolve_name(name) for name in games))
    for index, game in enumerate(resolved):
        if game in resolved[:index]:
            raise ValueError(
                f"task.games = {list(games)}: {game!r} comes twice; name each game once, by itself "
                "or in one pool"
            )
    return resolved


def missing_roms() -> list[str]:
    """Return the games whose ROM ale_py does not find."""
    from ale_py import roms

    return [game for game in ACTION_COUNTS if roms.get_rom_path(game) is None]


def _resolve_name(name: str) -> tuple[str, ...]:
    if name in POOLS:
        return POOLS[name]
    if name.startswith(MODES_OF):
        return _modes_of(name)
    try:
        base, arguments = split_name(name)
        game = _find_game(base, or_pools=tuple(POOLS))
        if not arguments:
            return (game,)
        return (find_mode(join_name(game, arguments)).name,)
    except ValueError as error:
        raise ValueError(f"task.games: {error}") from None


def _modes_of(name: str) -> tuple[str, ...]:
    try:
        game = _find_game(name.removeprefix(MODES_OF))
    except ValueError as error:
        raise ValueError(f"task.games = {name}: {error}") from None
    levels = difficulties(game)
    if len(modes(game)) == 1:
        example = join_name(game, {"difficulty": levels[-1]})
        hint = f"; name its difficulties one by one, such as {example}" if len(levels) > 1 else ""
        raise ValueError(f"task.games = {name}: {game} has one mode{hint}")
    return tuple(GameMode(game=game, mode=mode, difficulty=levels[0]).name for mode in modes(game))


def _find_game(name: str, or_pools: tuple[str, ...] = ()) -> str:
    # ALE/UpNDown-v5, UpNDown and up_n_down have the same key.
    key = re.sub(r"^ALE/|-v\d+$", "", name).replace("_", "").lower()
    if key in _GAMES_BY_KEY:
        return _GAMES_BY_KEY[key]
    close = get_close_matches(name.lower(), (*_GAMES_BY_KEY.values(), *or_pools), n=1)
    hint = f"; did you mean {close[0]!r}?" if close else ""
    sought = "game or pool" if or_pools else "game"
    raise ValueError(f"no {sought} is named {name!r}{hint} (leap-rl games lists all)")
