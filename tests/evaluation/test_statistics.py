from __future__ import annotations

import math

import pytest

from leap_rl.evaluation.statistics import mean_interval, student_probability, student_quantile


@pytest.mark.parametrize(
    ("degrees", "quantile"),
    # Abramowitz and Stegun, table 26.10: 97.5 %.
    [(1, 12.706), (2, 4.303), (3, 3.182), (4, 2.776), (9, 2.262), (30, 2.042)],
)
def test_students_quantiles_are_those_of_the_tables(degrees: int, quantile: float) -> None:
    assert student_quantile(0.975, degrees) == pytest.approx(quantile, abs=6e-4)
    assert student_probability(student_quantile(0.975, degrees), degrees) == pytest.approx(0.975)


def test_half_lies_below_zero() -> None:
    assert student_probability(0.0, 4) == student_probability(0.0, 5) == 0.5


def test_the_interval_of_three_values() -> None:
    mean, low, high, repeats = mean_interval([1.0, 2.0, 3.0])
    assert (mean, repeats) == (2.0, 3)
    assert high - mean == pytest.approx(4.303 / math.sqrt(3), abs=1e-3)
    assert mean - low == pytest.approx(high - mean)


def test_one_value_says_nothing_of_its_spread_and_none_is_refused() -> None:
    assert mean_interval([0.5]) == (0.5, -math.inf, math.inf, 1)
    with pytest.raises(ValueError, match="none"):
        mean_interval([])
