"""Flavours of Atari games: the modes and difficulties that their cartridges have.

Machado et al. 2018, "Revisiting the Arcade Learning Environment", call them so. A flavour's name is
the game's with what differs from its default: `space_invaders@mode=3`,
`freeway@mode=4,difficulty=1`. Each has one spelling: the mode first, defaults left out. All
flavours of a game have its actions, its screen and its colors.

A static table, as in `games`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby

from leap_rl.envs.names import join_name, split_name

_ONE = (0,)
_EVERY_FOURTH = range(0, 48, 4)

_TABLE: dict[str, tuple[Sequence[int], Sequence[int]]] = {
    "adventure": (range(3), range(4)),
    "air_raid": (range(1, 9), _ONE),
    "alien": (range(4), range(4)),
    "amidar": (_ONE, (0, 3)),
    "asteroids": ((*range(32), 128), (0, 3)),
    "atlantis": (range(4), _ONE),
    "bank_heist": (_EVERY_FOURTH[:8], range(4)),
    "battle_zone": (range(1, 4), _ONE),
    "beam_rider": (_ONE, range(2)),
    "berzerk": ((*range(1, 10), 16, 17, 18), _ONE),
    "bowling": ((0, 2, 4), range(2)),
    "boxing": (_ONE, range(4)),
    "breakout": (_EVERY_FOURTH, range(2)),
    "centipede": ((22, 86), _ONE),
    "chopper_command": ((0, 2), range(2)),
    "crazy_climber": (range(4), range(2)),
    "defender": ((*range(1, 10), 16), range(2)),
    "demon_attack": ((1, 3, 5, 7), range(2)),
    "double_dunk": (range(16), _ONE),
    "fishing_derby": (_ONE, range(4)),
    "freeway": (range(8), range(2)),
    "frostbite": ((0, 2), _ONE),
    "gopher": ((0, 2), range(2)),
    "gravitar": (range(5), _ONE),
    "hero": (range(5), _ONE),
    "ice_hockey": ((0, 2), range(4)),
    "jamesbond": (range(2), _ONE),
    "journey_escape": (_ONE, range(2)),
    "kangaroo": (range(2), _ONE),
    "ms_pacman": (range(4), _ONE),
    "name_this_game": ((8, 24, 40), range(2)),
    "pong": (range(2), range(4)),
    "pooyan": ((10, 30, 50, 70), _ONE),
    "private_eye": (range(5), range(4)),
    "qbert": (_ONE, range(2)),
    "riverraid": (_ONE, range(2)),
    "seaquest": (_ONE, range(2)),
    "space_invaders": (range(16), range(2)),
    "star_gunner": (range(4), _ONE),
    "tennis": ((0, 2), range(4)),
    "time_pilot": (_ONE, range(3)),
    "tutankham": (_EVERY_FOURTH[:4], _ONE),
    "up_n_down": (_ONE, range(4)),
    "venture": (_ONE, range(4)),
    "video_pinball": ((0, 2), range(2)),
    "wizard_of_wor": (_ONE, range(2)),
    "yars_revenge": ((0, 32, 64, 96), range(2)),
    "zaxxon": ((0, 8, 16, 24), _ONE),
}
"""Modes and difficulties, the default first, of each game that has more than one of either.

ALE's `getAvailableModes` and `getAvailableDifficulties` of ale-py 0.12.1. That the first is what an
emulator starts in was measured: it then stands, to the bit, where one stands that was told nothing.
"""


@dataclass(frozen=True, kw_only=True, slots=True)
class Flavour:
    """A game in one of its modes, at one of its difficulties."""

    game: str
    """A key of `games.ACTION_COUNTS`."""
    mode: int
    difficulty: int

    @property
    def name(self) -> str:
        """Its one spelling."""
        given = {"mode": self.mode, "difficulty": self.difficulty}
        defaults = {"mode": modes(self.game)[0], "difficulty": difficulties(self.game)[0]}
        different = {key: value for key, value in given.items() if value != defaults[key]}
        return join_name(self.game, different)


def modes(game: str) -> tuple[int, ...]:
    """Return the modes of an Atari game, by ALE's numbers, the default first."""
    return tuple(_TABLE.get(game, (_ONE, _ONE))[0])


def difficulties(game: str) -> tuple[int, ...]:
    """Return the difficulties of an Atari game, by ALE's numbers, the default first."""
    return tuple(_TABLE.get(game, (_ONE, _ONE))[1])


def find_flavour(name: str) -> Flavour:
    """Return what a name stands for.

    Args:
        name: a key of `games.ACTION_COUNTS`, with or without `@mode=...,difficulty=...`.

    Raises:
        ValueError: the game has no such mode or difficulty; the message names those that it has.
    """
    game, arguments = split_name(name)
    for key in arguments:
        if key not in ("mode", "difficulty"):
            raise ValueError(
                f"{name!r}: a game has no {key!r} to be chosen; say mode, difficulty or both, as "
                "in freeway@mode=4,difficulty=1"
            )
    return Flavour(
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
