"""Means over repetitions, and how sure they are."""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import fmean, stdev
from typing import NamedTuple

CONFIDENCE = 0.95


class Mean(NamedTuple):
    """A mean and its interval."""

    mean: float
    low: float
    high: float
    repeats: int


def mean_interval(values: Sequence[float]) -> Mean:
    """Return the mean of independent values and Student's 95 % interval around it.

    The interval takes the values for normally distributed; of a single one it is infinitely wide.

    Raises:
        ValueError: There are no values.
    """
    if not values:
        raise ValueError("values: there are none to take the mean of")
    mean, n = fmean(values), len(values)
    if n == 1:
        return Mean(mean, -math.inf, math.inf, 1)
    half = student_quantile(0.5 + CONFIDENCE / 2, n - 1) * stdev(values) / math.sqrt(n)
    return Mean(mean, mean - half, mean + half, n)


def student_quantile(probability: float, degrees: int) -> float:
    """Return t with P(T ≤ t) = probability ≥ 1/2 for Student's distribution, to 1e-9.

    Its distribution function is a finite sum for whole degrees of freedom (Abramowitz and Stegun,
    26.7.3 and 26.7.4), which bisection inverts.
    """
    low, high = 0.0, 1.0
    while student_probability(high, degrees) < probability:
        high *= 2.0
    while high - low > 1e-9 * max(1.0, high):
        middle = (low + high) / 2
        if student_probability(middle, degrees) < probability:
            low = middle
        else:
            high = middle
    return high


def student_probability(t: float, degrees: int) -> float:
    """Return P(T ≤ t) for Student's distribution with so many degrees of freedom."""
    angle = math.atan(t / math.sqrt(degrees))
    cosine = math.cos(angle)
    if degrees % 2:
        term, total = cosine, 0.0
        for k in range(1, degrees // 2 + 1):
            total += term
            term *= cosine**2 * 2 * k / (2 * k + 1)
        return 0.5 + (angle + math.sin(angle) * total) / math.pi
    term, total = 1.0, 0.0
    for k in range(1, degrees // 2 + 1):
        total += term
        term *= cosine**2 * (2 * k - 1) / (2 * k)
    return 0.5 + math.sin(angle) * total / 2
