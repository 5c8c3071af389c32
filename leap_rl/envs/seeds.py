"""The seeds of episodes, drawn for many environments at once.

`games.episode_seed` says what they are: the first word of numpy's `SeedSequence`. That takes longer
to make than a small game to begin, so that it is computed here in a compiled loop (O'Neill 2015,
"Developing a seed_seq Alternative", as in numpy's `bit_generator.pyx`).
"""

from __future__ import annotations

from typing import Any

import numpy as np

from leap_rl.core.kernels import kernel

_WORD = 0xFFFFFFFF


@kernel
def draw_episode_seeds(seeds: Any, indices: Any, episodes: Any, drawn: Any) -> None:
    """Write `episode_seed` of each of K environments; all are int64 [K], none negative."""
    pool = np.empty(4, dtype=np.uint64)
    words = np.empty(8, dtype=np.uint64)
    for k in range(len(drawn)):
        words[:4] = 0
        words[0] = seeds[k] & _WORD
        words[1] = seeds[k] >> 32
        count = _append(words, 4, indices[k])
        count = _append(words, count, episodes[k])
        drawn[k] = _first_word(pool, words[:count]) >> 1


@kernel
def _append(words: Any, count: int, number: int) -> int:
    """Append a number in as many words as it needs, at least one; return how many there are."""
    words[count] = number & _WORD
    count += 1
    if number >> 32:
        words[count] = number >> 32
        count += 1
    return count


@kernel
def _first_word(pool: Any, words: Any) -> Any:
    factor = np.uint64(0x43B0D7E5)
    for place in range(4):
        pool[place], factor = _hashed(words[place], factor)
    for source in range(4):
        for place in range(4):
            if source != place:
                word, factor = _hashed(pool[source], factor)
                pool[place] = _mixed(pool[place], word)
    for source in range(4, len(words)):
        for place in range(4):
            word, factor = _hashed(words[source], factor)
            pool[place] = _mixed(pool[place], word)
    word = pool[0] ^ np.uint64(0x8B51F9DD)
    word = (word * _low(np.uint64(0x8B51F9DD) * np.uint64(0x58F38DED))) & np.uint64(_WORD)
    return int(np.int64(word ^ (word >> np.uint64(16))))


@kernel
def _low(number: Any) -> Any:
    return number & np.uint64(_WORD)


@kernel
def _hashed(word: Any, factor: Any) -> Any:
    """Return a word's hash, and the next factor."""
    following = _low(factor * np.uint64(0x931E8875))
    word = _low((word ^ factor) * following)
    return word ^ (word >> np.uint64(16)), following


@kernel
def _mixed(first: Any, second: Any) -> Any:
    word = _low(np.uint64(0xCA01F9DD) * first - np.uint64(0x4973F715) * second)
    return word ^ (word >> np.uint64(16))
