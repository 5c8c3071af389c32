"""The statistics against literal oracles, printed tables, and the library of Agarwal et al. 2021.

`data/rliable.json` holds that library's numbers and says how they were made.
"""

from __future__ import annotations

import json
import math
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from leap_rl.evaluation.statistics import (
    Variance,
    bootstrap,
    interquartile_mean,
    mean_interval,
    performance_profile,
    probability_of_improvement,
    redraw,
    sign_flip_test,
    welch_interval,
)

DATA: dict[str, Any] = json.loads((Path(__file__).parent / "data" / "rliable.json").read_text())


def strata(name: str) -> list[np.ndarray]:
    """Scores by game of one side of the library's example."""
    return list(np.array(DATA[name]).T)


@pytest.mark.parametrize(
    ("degrees", "quantile"),
    # Abramowitz and Stegun, table 26.10: 97.5 %.
    [(1, 12.706), (2, 4.303), (3, 3.182), (4, 2.776), (9, 2.262), (30, 2.042)],
)
def test_the_intervals_half_width_is_students_quantile_times_the_error(
    degrees: int, quantile: float
) -> None:
    values = [float(i % 3) for i in range(degrees + 1)]
    mean = mean_interval(values)
    error = np.std(values, ddof=1) / math.sqrt(len(values))
    assert (mean.high - mean.value) / error == pytest.approx(quantile, abs=6e-4)
    assert (mean.value - mean.low) / error == pytest.approx(quantile, abs=6e-4)


def test_one_value_says_nothing_of_its_spread_and_none_is_refused() -> None:
    assert mean_interval([0.5]) == (0.5, -math.inf, math.inf)
    with pytest.raises(ValueError, match="no scores"):
        mean_interval([])


def test_equal_values_are_an_interval_of_no_width() -> None:
    assert mean_interval([0.1, 0.1, 0.1])[1:] == pytest.approx((0.1, 0.1))


@pytest.mark.parametrize("side", ["x", "y"])
def test_the_interquartile_mean_and_its_interval_are_rliables(side: str) -> None:
    value, *ends = bootstrap(interquartile_mean, strata(side), seed=0)
    assert value == pytest.approx(DATA["iqm"][side]["value"], abs=1e-12)
    np.testing.assert_allclose(ends, DATA["iqm"][side]["interval"], atol=0.03)


def test_the_probability_of_improvement_and_its_interval_are_rliables() -> None:
    value, *ends = bootstrap(probability_of_improvement, strata("x"), strata("y"), seed=0)
    assert value == pytest.approx(DATA["improvement"]["value"], abs=1e-12)
    np.testing.assert_allclose(ends, DATA["improvement"]["interval"], atol=0.02)


def test_the_probability_of_improvement_counts_ties_half() -> None:
    literal = np.mean(
        [
            np.mean([(x > y) + 0.5 * (x == y) for x, y in product(ours, theirs)])
            for ours, theirs in zip(strata("x"), strata("y"), strict=True)
        ]
    )
    assert probability_of_improvement(strata("x"), strata("y")) == pytest.approx(literal)
    assert probability_of_improvement(strata("x"), strata("x")) == 0.5


def test_the_performance_profile_and_its_intervals_are_rliables() -> None:
    thresholds = np.array(DATA["thresholds"])
    profile = partial(performance_profile, thresholds=thresholds)
    value, *ends = bootstrap(profile, strata("x"), seed=0)
    np.testing.assert_allclose(value, DATA["profile"]["value"], atol=1e-12)
    # Shares of 20 agents: one of them up or down.
    np.testing.assert_allclose(ends, DATA["profile"]["interval"], atol=0.051)


def test_a_score_at_a_threshold_is_not_above_it() -> None:
    scores = [np.array([1.0, 2.0, 2.0, 3.0])]
    found = performance_profile(scores, np.array([1.0, 2.0, 3.0]))
    np.testing.assert_array_equal(found, [0.75, 0.25, 0.0])


def test_games_are_never_mixed_when_agents_are_redrawn() -> None:
    games = [np.array([0.0, 0.0]), np.array([1.0, 1.0, 1.0])]
    found = bootstrap(interquartile_mean, games, seed=0, resamples=50)
    assert set(found) == {float(interquartile_mean(games))}


def test_redrawing_a_single_agent_tells_nothing() -> None:
    one, zero = [np.array([1.0])], [np.array([0.0])]
    assert bootstrap(interquartile_mean, one, seed=0) == (1.0, -math.inf, math.inf)
    found = bootstrap(probability_of_improvement, one, zero, seed=0, bounds=(0.0, 1.0))
    assert found == (1.0, 0.0, 1.0)


def test_the_degrees_of_freedom_are_welchs() -> None:
    found = welch_interval(5.0, [Variance(1.0, 2), Variance(50 / 3 / 4, 3)])
    # By hand 4.2: between the tables' quantiles for 4 and 5.
    error = math.sqrt(1 + 50 / 3 / 4)
    assert 2.571 < (found.high - 5.0) / error < 2.776
    assert found.low + found.high == pytest.approx(10.0)


def test_one_degree_of_freedom_has_a_half_width_of_its_own() -> None:
    # The tables' 12.71 and 3.182.
    found = welch_interval(5.0, [Variance(1.0, 1), Variance(4.0, 3)])
    assert found.high - 5.0 == pytest.approx(math.hypot(12.7062, 2 * 3.18245), rel=1e-4)
    assert welch_interval(5.0, [Variance(0.0, 1)]) == (5.0, 5.0, 5.0)
    assert welch_interval(5.0, [Variance(0.0, 4)]) == (5.0, 5.0, 5.0)
    for unknown in ([], [Variance(1.0, 0)], [Variance(math.nan, 4), Variance(1.0, 4)]):
        assert welch_interval(5.0, unknown) == (5.0, -math.inf, math.inf)


@pytest.mark.parametrize("count", [1, 2, 5, 8])
def test_the_sign_flip_test_is_the_enumeration_of_all_signs(count: int) -> None:
    values = np.random.default_rng(count).normal(0.7, 1.0, count).tolist()
    totals = [abs(sum(map(math.prod, zip(signs, values, strict=True))))
              for signs in product((-1, 1), repeat=count)]  # fmt: skip
    extreme = [total >= abs(sum(values)) - 1e-9 for total in totals]
    assert sign_flip_test(values) == pytest.approx(np.mean(extreme))


def test_many_values_have_their_signs_drawn() -> None:
    values = [1.0] * 14 + [-1.0] * 6  # 20 flips: P(at most 6 or at least 14 heads)
    exact = 2 * sum(math.comb(20, k) for k in range(7)) / 2**20
    assert sign_flip_test(values) == pytest.approx(exact, abs=0.005)


def test_runs_are_redrawn_first_for_all_games_and_then_seeds() -> None:
    """A value names its run and seed, so that each draw can be read."""
    games = [np.array([[run + seed / 100 + 10 * game for seed in range(2 + game)]
                       for run in range(3)]) for game in range(2)]  # fmt: skip
    first, second = redraw(games, np.random.default_rng(0), 50)
    runs = np.floor(first).reshape(50, 3, 2)
    seeds = np.round(100 * (first.reshape(50, 3, 2) - runs))
    assert (runs == runs[:, :, :1]).all()  # a run brings all its seeds
    assert (seeds == seeds[:, :1]).all()  # and a seed is drawn for all runs
    assert (np.floor(second.reshape(50, 3, 3)[:, :, 0] - 10) == runs[:, :, 0]).all()
    assert {tuple(row) for row in runs[:, :, 0]} > {(0, 0, 0), (0, 1, 2)}
