"""From the emulator's last two screens to an observation, in one pass and in whole numbers.

An observation is the maximum of two screens, color by color, resized to 84 × 84 by averaging over
areas (OpenCV's `INTER_AREA`). Three facts make it cheap.

**The weights are whole numbers.** A screen of 210 rows and 160 columns has 5/2 rows and 40/21
columns to each pixel of the observation. Cut each screen row into 2 and each column into 21 parts:
a pixel covers 5 parts of rows, as (2, 2, 1) or (1, 2, 2), and 40 parts of columns, such as
(21, 19, 0) or (2, 21, 17). Its color is a sum of whole numbers, divided by 5 · 40 = 200 and
rounded. The five games whose screens have 214 to 250 rows only have other weights.

**A pixel has one of 256 colors.** So what two screens give at one place is one of 256 · 256 maxima,
and a table of them holds red, green and blue side by side in one 64-bit word, in fields of 21 bits:
one lookup, one multiplication and one addition serve all three. The fields never overflow into one
another, since the largest sum is 255 · 125 · 40 (250 rows) < 2²¹.

**Most of a screen stands still.** A row of the observation is computed only if one of its two to
four screen rows differs from that of the agent step before, in either frame. What is compared is
the second frame with the last one's second, and whether the first frame equals the second, then
and now. This never changes a result.

**Rounding needs no division.** With d = 200, or what the weights of another height sum up to, and
m = ⌈2³⁴ / d⌉, (s · m) >> 34 is ⌊s / d⌋ for all s < 2²¹: the error s · (m − 2³⁴ / d) / 2³⁴ is under
2⁻¹³ and so under 1 / d, as d is at most 5000. Halves are rounded up; OpenCV computes in floating
point, so an observation differs from its by at most one level, where the exact value is a half.
"""

from __future__ import annotations

from math import gcd
from typing import Any

import numpy as np
from numpy.typing import NDArray

from leap_rl.core.kernels import kernel
from leap_rl.envs.atari.settings import SCREEN

WIDTH = 160
"""Columns of every game's screen."""

_FIELD = 21
_MASK = np.uint32((1 << _FIELD) - 1)
_SHIFT = np.uint64(34)
_WORDS = WIDTH // 8  # a screen row, compared by 64-bit words


def area_weights(source: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return which of `source` rows (or columns) each of the 84 covers, and how much of them.

    That is the first row [84], and the weights of the rows from there on, [84, n]: whole numbers,
    0 for rows that are not covered, of the same sum for all 84.
    """
    parts = SCREEN // gcd(source, SCREEN)  # each source row is cut into so many
    covered = source * parts // SCREEN  # and each of the 84 covers so many of the parts
    begin = np.arange(SCREEN) * covered
    first = begin // parts
    most = int(((begin + covered - 1) // parts - first).max()) + 1
    edges = (first[:, None] + np.arange(most + 1)) * parts
    clipped = np.clip(edges, begin[:, None], begin[:, None] + covered)
    return first, np.diff(clipped, axis=1)


def pair_table(colors: NDArray[np.uint8]) -> NDArray[np.uint64]:
    """Return the maxima of all pairs of colors [256, channels], uint64 [256 · 256]."""
    shifts = np.arange(colors.shape[1], dtype=np.uint64) * np.uint64(_FIELD)
    maxima = np.maximum(colors[:, None], colors[None]).astype(np.uint64)
    packed: NDArray[np.uint64] = (maxima << shifts).sum(axis=-1, dtype=np.uint64)
    return packed.ravel()


_FIRST_COLUMN, _COLUMN_WEIGHTS = area_weights(WIDTH)
_COLUMN_WEIGHTS = np.ascontiguousarray(_COLUMN_WEIGHTS.T, dtype=np.uint64)  # [3, 84]
_FIRST_COLUMN = _FIRST_COLUMN.astype(np.uintp)  # unsigned: the compiler need not look for negatives
_COLUMNS = len(_COLUMN_WEIGHTS)
_LINE = WIDTH + _COLUMNS  # so that columns of weight 0 may lie beyond the last


@kernel
def _differ(one: Any, two: Any) -> Any:
    """Compare two rows of words, all of them, which vectors do faster than an early exit."""
    difference = np.uint64(0)
    for word in range(_WORDS):
        difference |= one[word] ^ two[word]
    return difference != 0


@kernel
def _find_changes(first: Any, second: Any, seen: Any, still: Any, changed: Any) -> None:
    for row in range(first.shape[0]):
        two, last = second[row], seen[row]
        stands = not _differ(first[row], two)
        if _differ(two, last):
            changed[row] = True
            for word in range(_WORDS):
                last[word] = two[word]
        else:
            changed[row] = not (stands and still[row])
        still[row] = stands


@kernel
def _pair(one: Any, two: Any) -> Any:
    """Return the place of a pair of palette indices in the table."""
    return np.uintp((np.uint32(one) << np.uint32(8)) | np.uint32(two))


@kernel
def _blend_three(
    a: Any, b: Any, c: Any, d: Any, e: Any, f: Any, u: Any, v: Any, w: Any, table: Any, line: Any
) -> None:
    """Sum three pooled rows, (a, d), (b, e), (c, f), by weight, into a line of packed columns."""
    for x in range(WIDTH):
        line[x] = (
            u * table[_pair(a[x], d[x])]
            + v * table[_pair(b[x], e[x])]
            + w * table[_pair(c[x], f[x])]
        )


@kernel
def _blend_one_more(a: Any, d: Any, u: Any, table: Any, line: Any) -> None:
    for x in range(WIDTH):
        line[x] += u * table[_pair(a[x], d[x])]


@kernel
def _sum_columns(line: Any, first: Any, u: Any, v: Any, w: Any, half: Any, sums: Any) -> None:
    for x in range(SCREEN):
        column = first[x]
        sums[x] = (
            half
            + line[column] * u[x]
            + line[column + np.uintp(1)] * v[x]
            + line[column + np.uintp(2)] * w[x]
        )


@kernel
def _level(total: Any, multiplier: Any) -> Any:
    """Divide the lowest field of a sum."""
    return np.uint8((np.uint64(np.uint32(total) & _MASK) * multiplier) >> _SHIFT)


@kernel
def _divide_rgb(sums: Any, multiplier: Any, pixels: Any) -> None:
    for x in range(SCREEN):
        total = sums[x]
        for channel in range(3):
            pixels[3 * x + channel] = _level(total, multiplier)
            total >>= np.uint64(_FIELD)


@kernel
def _divide(sums: Any, multiplier: Any, pixels: Any, stride: Any, channels: Any) -> None:
    """Write the newest frame of a row of 84 stacked pixels, each `stride` bytes."""
    for x in range(SCREEN):
        total = sums[x]
        for channel in range(channels):
            pixels[(x + 1) * stride - channels + channel] = _level(total, multiplier)
            total >>= np.uint64(_FIELD)


@kernel
def _age(pixels: Any, channels: Any) -> None:
    """Move the frames of a stack, [84 · 84, channels · frames], one place towards the oldest."""
    kept = pixels.shape[1] - channels
    for pixel in range(pixels.shape[0]):
        for k in range(kept):
            pixels[pixel, k] = pixels[pixel, k + channels]


@kernel
def _draw(
    index: Any,
    screens: Any,
    words: Any,
    seen: Any,
    still: Any,
    observations: Any,
    stacks: Any,
    first_rows: Any,
    row_weights: Any,
    table: Any,
    divisor: Any,
    changed: Any,
    line: Any,
    sums: Any,
    channels: Any,
) -> None:
    _find_changes(words[0], words[1], seen[index], still[index], changed)
    if stacks.shape[1] != 0:
        # Gray and 4 frames, the common stack: a pixel is one word, its newest frame the top byte.
        pixels = stacks[index]
        for k in range(pixels.shape[0]):
            pixels[k] = (pixels[k] >> np.uint32(8)) | (pixels[k] & np.uint32(0xFF000000))
    elif observations.shape[3] != channels:
        _age(observations[index].reshape(SCREEN * SCREEN, observations.shape[3]), channels)
    half = np.uint64(divisor // 2)
    half |= (half << np.uint64(_FIELD)) | (half << np.uint64(2 * _FIELD))
    multiplier = np.uint64(((1 << 34) + divisor - 1) // divisor)
    depth = observations.shape[3]
    rows = observations[index].reshape(SCREEN, SCREEN * depth)
    for row in range(SCREEN):
        top = first_rows[row]
        weights = row_weights[row]
        stale = False
        for k in range(weights.shape[0]):
            stale = stale or (weights[k] != 0 and changed[top + k])
        if stale:
            one, two = screens[0], screens[1]
            _blend_three(
                *(one[top], one[top + 1], one[top + 2], two[top], two[top + 1], two[top + 2]),
                *(weights[0], weights[1], weights[2], table, line),
            )
            if weights.shape[0] == 4 and weights[3] != 0:
                _blend_one_more(one[top + 3], two[top + 3], weights[3], table, line)
            _sum_columns(
                line,
                _FIRST_COLUMN,
                _COLUMN_WEIGHTS[0],
                _COLUMN_WEIGHTS[1],
                _COLUMN_WEIGHTS[2],
                half,
                sums,
            )
            if depth == 3 and channels == 3:
                _divide_rgb(sums, multiplier, rows[row])
            else:
                _divide(sums, multiplier, rows[row], depth, channels)


class FrameRenderer:
    """Keeps the observations of B environments, and draws them from two screens at a time.

    `colors` are uint8 [256, channels], by palette index; 1 channel for gray, 3 for RGB. `screens`
    [2, height, 160] are palette indices of the last two frames, shared by all environments, to be
    filled before `draw`; both the same where there is one frame only. `observations`
    [B, 84, 84, frames · channels] stack so many frames, the oldest first; they are drawn in place,
    so copy them to hand them out.
    """

    def __init__(
        self, height: int, colors: NDArray[np.uint8], *, num_envs: int, frames: int
    ) -> None:
        channels = colors.shape[1]
        self.screens = np.zeros((2, height, WIDTH), dtype=np.uint8)
        self.observations = np.zeros((num_envs, SCREEN, SCREEN, frames * channels), dtype=np.uint8)
        self._channels = channels
        first_rows, row_weights = area_weights(height)
        divisor = int(row_weights[0].sum() * _COLUMN_WEIGHTS[:, 0].sum())
        self._seen = np.zeros((num_envs, height, _WORDS), dtype=np.uint64)  # last second screens
        self._still = np.zeros((num_envs, height), dtype=np.bool_)  # both frames had the same row
        if channels * frames == 4:
            stacks = self.observations.view(np.uint32).reshape(num_envs, SCREEN * SCREEN)
        else:
            stacks = np.zeros((num_envs, 0), dtype=np.uint32)
        self._arguments = (
            self.screens,
            self.screens.view(np.uint64),
            self._seen,
            self._still,
            self.observations,
            stacks,
            first_rows,
            row_weights.astype(np.uint64),
            pair_table(colors),
            divisor,
            np.zeros(height, dtype=np.bool_),
            np.zeros(_LINE, dtype=np.uint64),
            np.zeros(SCREEN, dtype=np.uint64),
            channels,
        )

    def draw(self, index: int) -> None:
        """Add the frame that `screens` show to environment `index`'s observation."""
        _draw(index, *self._arguments)

    def fill(self, index: int, screen: NDArray[np.uint8]) -> None:
        """Start an episode: every frame of the observation shows `screen`, [height, 160]."""
        self.screens[:] = screen
        self.draw(index)
        observation = self.observations[index]
        newest = observation[..., -self._channels :]
        observation[:] = np.tile(newest, observation.shape[2] // self._channels)

    def forget(self, index: int) -> None:
        """Invalidate the row cache: the next observation is drawn in full."""
        self._still[index] = False
