"""Medians with their intervals."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median
from typing import NamedTuple

import numpy as np
from scipy.stats import quantile_test

CONFIDENCE = 0.95


class Estimate(NamedTuple):
    """A median and its interval."""

    median: float
    low: float
    high: float


def estimate(values: Sequence[float]) -> Estimate:
    """Return the median of independent values and an interval that holds the true one.

    The interval runs between two of the sorted values (order statistics), whatever their
    distribution, and has at least 95 % confidence from six values on; of fewer it runs from the
    smallest to the largest.
    """
    interval = quantile_test(values, p=0.5).confidence_interval(CONFIDENCE)
    low, high = np.nan_to_num(interval.low, nan=min(values)), interval.high
    return Estimate(median(values), float(low), float(np.nan_to_num(high, nan=max(values))))
