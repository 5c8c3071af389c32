from __future__ import annotations

import pytest

from benchmarks.harness.medians import estimate


@pytest.mark.parametrize(
    ("n", "low", "high"),
    # The tabulated ranks of the 95 % interval of a median (as in Conover 1999, counted from 1).
    [(6, 1, 6), (8, 1, 8), (9, 2, 8), (20, 6, 15), (50, 18, 33)],
)
def test_the_interval_is_that_of_the_tables(n: int, low: int, high: int) -> None:
    assert estimate(list(range(n, 0, -1))) == ((n + 1) / 2, low, high)


def test_few_values_give_all_there_is() -> None:
    assert estimate([3.0, 1.0, 2.0]) == (2.0, 1.0, 3.0)
    assert estimate([5.0]) == (5.0, 5.0, 5.0)
