"""Medians, and how sure they are."""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import median
from typing import NamedTuple

CONFIDENCE = 0.95


class Estimate(NamedTuple):
    """A median and its interval."""

    median: float
    low: float
    high: float


def estimate(values: Sequence[float]) -> Estimate:
    """Return the median of independent values and an interval that holds the true one.

    The interval runs between two of the sorted values and assumes nothing about how they are
    distributed: the number of values below the true median is binomial (order statistics). It has
    at least 95 % confidence from six values on; of fewer it is all there is, smallest to largest.
    """
    ordered = sorted(values)
    n = len(ordered)
    below = 0.0
    rank = 0  # how many values can be left out at each end
    while 2 * (below + math.comb(n, rank) / 2**n) <= 1 - CONFIDENCE:
        below += math.comb(n, rank) / 2**n
        rank += 1
    outermost = max(rank - 1, 0)
    return Estimate(median(ordered), ordered[outermost], ordered[n - 1 - outermost])
