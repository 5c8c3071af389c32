"""What MinAtar's games share: records, actions and random numbers.

The random numbers are those of `numpy.random.RandomState(seed)`, drawn within compiled loops:
MT19937 (Matsumoto and Nishimura 1998). A word of its state is renewed when it is drawn, and not all
624 at once: most episodes end before they have drawn that many.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from leap_rl.core.kernels import kernel

SIZE = 10
"""Rows and columns, in cells."""

NOTHING, LEFT, UP, RIGHT, DOWN, FIRE = range(6)

WORDS = 624


def record(numbers: str, *fields: tuple[Any, ...]) -> np.dtype[Any]:
    """Return the type of a game's record: what any game has, named int64, and other fields."""
    own = [(name, np.int64) for name in ("place", "last_action", *numbers.split())]
    return np.dtype([("words", np.uint32, (WORDS,)), *own, *fields], align=True)


@kernel
def begin(game: Any, seed: int) -> None:
    """Begin an episode, which depends on its seed in [0, 2**32) and its actions alone."""
    word = np.uint64(seed)
    words = game.words
    for place in range(624):
        words[place] = word
        word = np.uint64(1812433253) * (word ^ (word >> np.uint64(30))) + np.uint64(place + 1)
        word &= np.uint64(0xFFFFFFFF)
    game.place = 0
    game.last_action = 0


@kernel
def draw_word(state: Any) -> Any:
    """Draw 32 bits, as uint64."""
    words, place = state.words, state.place
    following = place + 1 if place < 623 else 0
    distant = place + 397 if place < 227 else place - 227
    joined = (words[place] & np.uint64(0x80000000)) | (words[following] & np.uint64(0x7FFFFFFF))
    drawn = words[distant] ^ (joined >> np.uint64(1))
    if joined & np.uint64(1):
        drawn ^= np.uint64(0x9908B0DF)
    words[place] = drawn
    state.place = following
    drawn ^= drawn >> np.uint64(11)
    drawn ^= (drawn << np.uint64(7)) & np.uint64(0x9D2C5680)
    drawn ^= (drawn << np.uint64(15)) & np.uint64(0xEFC60000)
    return drawn ^ (drawn >> np.uint64(18))


@kernel
def uniform(state: Any) -> Any:
    """Draw a float64 in [0, 1), as `RandomState.rand` does."""
    high, low = draw_word(state) >> np.uint64(5), draw_word(state) >> np.uint64(6)
    return (np.float64(high) * 67108864.0 + np.float64(low)) / 9007199254740992.0


@kernel
def below(state: Any, count: int) -> Any:
    """Draw an integer in [0, count), as `RandomState.randint` does; of one nothing is drawn."""
    if count == 1:
        return 0
    mask = np.uint64(1)
    while mask < np.uint64(count - 1):
        mask = (mask << np.uint64(1)) | np.uint64(1)
    drawn = draw_word(state) & mask
    while drawn > np.uint64(count - 1):
        drawn = draw_word(state) & mask
    return np.int64(drawn)


@kernel
def taken(game: Any, action: int, sticky: float) -> Any:
    """Return the action that is taken: by chance it is the last one again."""
    if uniform(game) < sticky:
        return game.last_action
    game.last_action = action
    return action


@kernel
def put(cells: Any, row: int, column: int, thing: int) -> None:
    """Show a thing in a cell of [10, 10], where its bit is set; beyond the edges there is none."""
    if 0 <= row <= 9 and 0 <= column <= 9:
        cells[row, column] |= np.uint16(1 << thing)
