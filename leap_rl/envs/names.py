"""Names that carry arguments, `NAME@key=value,key=value`, and the games that they spell.

`freeway@mode=4,difficulty=1` is an Atari game, `leap_rl/CartPole-v1@length=0.7` a Gymnasium id with
keyword arguments. Nothing here imports an environment, so that a config can be checked anywhere.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field

Scalar = bool | int | float | str | None

# Gymnasium's own form, module:namespace/name-vN, without the colons that it takes elsewhere.
_ID = re.compile(r"(?:(?P<module>\w+(?:\.\w+)*):)?(?:[\w-]+/)?\w[\w.-]*")
_KEY = re.compile(r"[A-Za-z_]\w*")
_WORD = re.compile(r"[\w.+-]+")
_INTEGER = re.compile(r"[+-]?\d+")
_NUMBER = re.compile(r"[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?")
_WORDS: Mapping[str, Scalar] = {"true": True, "false": False, "null": None}
_PYTHONS_WORDS: Mapping[str, Scalar] = {"True": True, "False": False, "None": None}
"""As texts all three would be true."""


def split_name(name: str) -> tuple[str, dict[str, str]]:
    """Split a name from its arguments, in the order given; ValueError if it is not so spelled."""
    base, at, rest = name.partition("@")
    arguments: dict[str, str] = {}
    for part in rest.split(",") if at else ():
        key, equals, value = (piece.strip() for piece in part.partition("="))
        if not (base and key and equals and value):
            raise ValueError(f"{name!r}: must be spelled NAME or NAME@key=value,key=value")
        if key in arguments:
            raise ValueError(f"{name!r}: {key} comes twice; give it once")
        arguments[key] = value
    return base, arguments


def join_name(base: str, arguments: Mapping[str, object]) -> str:
    """Undo `split_name`; without arguments there is no `@`."""
    pairs = ",".join(f"{key}={value}" for key, value in arguments.items())
    return f"{base}@{pairs}" if pairs else base


@dataclass(frozen=True, kw_only=True, slots=True)
class GymnasiumGame:
    """An environment and the keyword arguments that it is made with."""

    id: str
    """As `gymnasium.make` takes it."""
    arguments: Mapping[str, Scalar] = field(default_factory=dict)
    """By name, sorted."""

    @property
    def name(self) -> str:
        """The canonical spelling; `parse_game` undoes it."""
        return join_name(self.id, {key: _spelled(value) for key, value in self.arguments.items()})

    @property
    def module(self) -> str | None:
        return self.id.partition(":")[0] if ":" in self.id else None


def parse_game(text: str) -> GymnasiumGame:
    """Read one entry of `task.games`: an id, and what goes to `gymnasium.make` besides.

    Such as `CartPole-v1`, `FrozenLake-v1@is_slippery=false,map_name=8x8`,
    `my_games:Maze-v0@size=9`. A value is true, false, null, a number, or a word of letters, digits
    and any of _ . + -. ValueError: it is none; the message names it.
    """
    try:
        name, words = split_name(text)
    except ValueError as error:
        raise ValueError(f"task.games: {error}") from None
    if not _ID.fullmatch(name):
        raise ValueError(
            f"task.games: {text!r} is no Gymnasium id, such as CartPole-v1, MinAtar/Asterix-v1 or "
            "my_module:MyGame-v0 (in a YAML list in brackets, quote an entry with commas)"
        )
    arguments: dict[str, Scalar] = {}
    for key, word in words.items():
        if not (_KEY.fullmatch(key) and _WORD.fullmatch(word)):
            raise ValueError(
                f"task.games: {text!r}: {key}={word} must be key=value, such as {name}@length=0.7,"
                "gravity=5; a value is a number, true, false, null or a word"
            )
        arguments[key] = _value(word, text)
    return GymnasiumGame(id=name, arguments=dict(sorted(arguments.items())))


def _value(word: str, text: str) -> Scalar:
    for words in (_WORDS, _PYTHONS_WORDS):
        if word in words:
            return words[word]
    if _INTEGER.fullmatch(word):
        return int(word)
    if not _NUMBER.fullmatch(word):
        return word
    number = float(word)
    if not math.isfinite(number):
        raise ValueError(f"task.games: {text!r}: {word} is too large for a number")
    return number


def _spelled(value: Scalar) -> str:
    for word, meaning in _WORDS.items():
        if value is meaning:
            return word
    return str(value)
