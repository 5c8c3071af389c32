"""The random numbers of `numpy.random.RandomState(seed)`, drawn within compiled loops.

MT19937 (Matsumoto and Nishimura 1998). A word of its state is renewed when it is drawn, and not all
624 at once: most episodes end before they have drawn that many.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from leap_rl.core.kernels import kernel

WORDS = 624

FIELDS: list[tuple[Any, ...]] = [("words", np.uint32, (WORDS,)), ("place", np.int64)]
"""What a record needs to be drawn from."""


@kernel
def seed(state: Any, number: int) -> None:
    """Start the stream of a number in [0, 2**32)."""
    word = np.uint64(number)
    words = state.words
    for place in range(624):
        words[place] = word
        word = np.uint64(1812433253) * (word ^ (word >> np.uint64(30))) + np.uint64(place + 1)
        word &= np.uint64(0xFFFFFFFF)
    state.place = 0


@kernel
def word(state: Any) -> Any:
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
    high, low = word(state) >> np.uint64(5), word(state) >> np.uint64(6)
    return (np.float64(high) * 67108864.0 + np.float64(low)) / 9007199254740992.0


@kernel
def below(state: Any, count: int) -> Any:
    """Draw an integer in [0, count), as `RandomState.randint` does; of one nothing is drawn."""
    if count == 1:
        return 0
    mask = np.uint64(1)
    while mask < np.uint64(count - 1):
        mask = (mask << np.uint64(1)) | np.uint64(1)
    drawn = word(state) & mask
    while drawn > np.uint64(count - 1):
        drawn = word(state) & mask
    return np.int64(drawn)
