"""The Atari games by name, with the modes and difficulties of their cartridges, and the pools.

The games are the 62 of OpenAI Gym's list, complete since its version 0.12.1 of March 2019. 27 of
them have at most 10 actions; holding out Breakout and SpaceInvaders leaves a pretraining pool of
25. (The paper's "27 games" can be read as 27 after the hold-out; no list of Gym's gives that. Gym
0.10 and 0.11 lack Adventure and Defender, of 18 actions, which changes no pool but the large ones.)

Machado et al. 2018, "Revisiting the Arcade Learning Environment", call a mode with a difficulty a
flavour. It is named after its game, with all values that are not the default, the mode first:
`space_invaders@mode=3`, `freeway@mode=4,difficulty=1`. All modes of a game share its actions, its
screen and its colors.

Nothing here loads an emulator, so that a config can be checked anywhere.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from itertools import chain, groupby

from leap_rl.envs.names import join_name, split_name

_ONE = (0,)
_EVERY_FOURTH = range(0, 48, 4)

TABLE: dict[str, tuple[int, Sequence[int], Sequence[int]]] = {
    "adventure": (18, range(3), range(4)),
    "air_raid": (6, range(1, 9), _ONE),
    "alien": (18, range(4), range(4)),
    "amidar": (10, _ONE, (0, 3)),
    "assault": (7, _ONE, _ONE),
    "asterix": (9, _ONE, _ONE),
    "asteroids": (14, (*range(32), 128), (0, 3)),
    "atlantis": (4, range(4), _ONE),
    "bank_heist": (18, _EVERY_FOURTH[:8], range(4)),
    "battle_zone": (18, range(1, 4), _ONE),
    "beam_rider": (9, _ONE, range(2)),
    "berzerk": (18, (*range(1, 10), 16, 17, 18), _ONE),
    "bowling": (6, (0, 2, 4), range(2)),
    "boxing": (18, _ONE, range(4)),
    "breakout": (4, _EVERY_FOURTH, range(2)),
    "carnival": (6, _ONE, _ONE),
    "centipede": (18, (22, 86), _ONE),
    "chopper_command": (18, (0, 2), range(2)),
    "crazy_climber": (9, range(4), range(2)),
    "defender": (18, (*range(1, 10), 16), range(2)),
    "demon_attack": (6, (1, 3, 5, 7), range(2)),
    "double_dunk": (18, range(16), _ONE),
    "elevator_action": (18, _ONE, _ONE),
    "enduro": (9, _ONE, _ONE),
    "fishing_derby": (18, _ONE, range(4)),
    "freeway": (3, range(8), range(2)),
    "frostbite": (18, (0, 2), _ONE),
    "gopher": (8, (0, 2), range(2)),
    "gravitar": (18, range(5), _ONE),
    "hero": (18, range(5), _ONE),
    "ice_hockey": (18, (0, 2), range(4)),
    "jamesbond": (18, range(2), _ONE),
    "journey_escape": (16, _ONE, range(2)),
    "kangaroo": (18, range(2), _ONE),
    "krull": (18, _ONE, _ONE),
    "kung_fu_master": (14, _ONE, _ONE),
    "montezuma_revenge": (18, _ONE, _ONE),
    "ms_pacman": (9, range(4), _ONE),
    "name_this_game": (6, (8, 24, 40), range(2)),
    "phoenix": (8, _ONE, _ONE),
    "pitfall": (18, _ONE, _ONE),
    "pong": (6, range(2), range(4)),
    "pooyan": (6, (10, 30, 50, 70), _ONE),
    "private_eye": (18, range(5), range(4)),
    "qbert": (6, _ONE, range(2)),
    "riverraid": (18, _ONE, range(2)),
    "road_runner": (18, _ONE, _ONE),
    "robotank": (18, _ONE, _ONE),
    "seaquest": (18, _ONE, range(2)),
    "skiing": (3, _ONE, _ONE),
    "solaris": (18, _ONE, _ONE),
    "space_invaders": (6, range(16), range(2)),
    "star_gunner": (18, range(4), _ONE),
    "tennis": (18, (0, 2), range(4)),
    "time_pilot": (10, _ONE, range(3)),
    "tutankham": (8, _EVERY_FOURTH[:4], _ONE),
    "up_n_down": (6, _ONE, range(4)),
    "venture": (18, _ONE, range(4)),
    "video_pinball": (9, (0, 2), range(2)),
    "wizard_of_wor": (10, _ONE, range(2)),
    "yars_revenge": (18, (0, 32, 64, 96), range(2)),
    "zaxxon": (18, (0, 8, 16, 24), _ONE),
}
"""The size of the minimal action set, modes and difficulties of each game, the defaults first.

ALE's `getMinimalActionSet`, `getAvailableModes` and `getAvailableDifficulties` of ale-py 0.12.1.
An emulator starts in the first mode and difficulty: setting them changes no bit of its state.
"""


@dataclass(frozen=True, kw_only=True, slots=True)
class GameMode:
    """A game in one of its modes, at one of its difficulties."""

    game: str
    mode: int
    difficulty: int

    @property
    def name(self) -> str:
        given = {"mode": self.mode, "difficulty": self.difficulty}
        defaults = {"mode": modes(self.game)[0], "difficulty": difficulties(self.game)[0]}
        different = {key: value for key, value in given.items() if value != defaults[key]}
        return join_name(self.game, different)


def modes(game: str) -> tuple[int, ...]:
    """Return the modes of an Atari game, by ALE's numbers, the default first."""
    return tuple(TABLE[game][1])


def difficulties(game: str) -> tuple[int, ...]:
    """Return the difficulties of an Atari game, by ALE's numbers, the default first."""
    return tuple(TABLE[game][2])


def find_mode(name: str) -> GameMode:
    """Parse a game's name; ValueError if the game has no such mode or difficulty."""
    game, arguments = split_name(name)
    for key in arguments:
        if key not in ("mode", "difficulty"):
            raise ValueError(
                f"{name!r}: a game has no {key!r} to be chosen; say mode, difficulty or both, as "
                "in freeway@mode=4,difficulty=1"
            )
    return GameMode(
        game=game,
        mode=_choose(name, game, "mode", modes(game), arguments.get("mode")),
        difficulty=_choose(
            name, game, "difficulty", difficulties(game), arguments.get("difficulty")
        ),
    )


def _choose(name: str, game: str, what: str, known: tuple[int, ...], text: str | None) -> int:
    if text is None:
        return known[0]
    if text.isdecimal() and int(text) in known:
        return int(text)
    plural = {"mode": "modes", "difficulty": "difficulties"}[what]
    have = f"its {plural} are {listed(known)}" if len(known) > 1 else f"{known[0]} is its only one"
    raise ValueError(f"{name!r}: {game} has no {what} {text}; {have}")


def listed(numbers: Sequence[int]) -> str:
    """Return rising numbers in few words, such as `0 to 31, 128`."""
    parts: list[str] = []
    for _, run in groupby(enumerate(numbers), key=lambda pair: pair[1] - pair[0]):
        own = [number for _, number in run]
        parts += [f"{own[0]} to {own[-1]}"] if len(own) > 2 else map(str, own)
    return ", ".join(parts)


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

MODES_OF = "modes:"
"""Before a game's name: the pool of all its modes, at its default difficulty."""

_GAMES_BY_KEY = {game.replace("_", ""): game for game in ACTION_COUNTS}


def resolve_games(games: Sequence[str]) -> tuple[str, ...]:
    """Turn a list of games and pools into a list of games, pools spelled out, in the order given.

    Games by name (`up_n_down`; Gymnasium's `UpNDown` and `ALE/UpNDown-v5` will do), modes
    (`pong@mode=1`), pools (a key of `POOLS`, or `modes:pong`). ValueError: a name is unknown, a
    game comes twice, or there is none.
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


def is_game(name: str) -> bool:
    """Return whether a name is that of a game or a mode, as `resolve_games` reads it."""
    try:
        _find_game(split_name(name)[0])
    except ValueError:
        return False
    return True


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
