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
    ENOUGH_PAIRS,
    bootstrap,
    detectable_effect,
    interquartile_mean,
    mean_interval,
    performance_profile,
    probability_of_improvement,
    relative_gains,
    stratified_mean_interval,
    what_pairs_can_say,
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
    with pytest.raises(ValueError, match="no scores"):
        stratified_mean_interval([np.array([1.0]), np.array([])])


def test_equal_values_are_an_interval_of_no_width() -> None:
    assert mean_interval([0.1, 0.1, 0.1])[1:] == pytest.approx((0.1, 0.1))


def test_each_game_counts_the_same_and_brings_its_own_spread() -> None:
    games = [np.array([1.0, 3.0]), np.array([10.0, 11.0, 12.0, 19.0])]
    found = stratified_mean_interval(games)
    assert found.value == pytest.approx((2.0 + 13.0) / 2)
    # Variances of the means: 2/2 and (9 + 4 + 1 + 36)/3/4 by hand.
    a, b = 1.0, 50 / 3 / 4
    degrees = (a + b) ** 2 / (a**2 / 1 + b**2 / 3)
    assert 3 < degrees < 4
    half = found.high - found.value
    error = math.sqrt(a + b) / 2
    # Between the tables' quantiles for 3 and 4 degrees of freedom.
    assert 2.776 < half / error < 3.182


def test_a_game_with_one_value_leaves_no_interval() -> None:
    found = stratified_mean_interval([np.array([1.0, 3.0]), np.array([4.0])])
    assert found == (3.0, -math.inf, math.inf)


def test_a_relative_gain_is_the_ratio_of_the_means() -> None:
    ours, theirs = np.array([1.0, 2.0, 6.0]), np.array([1.0, 1.0, 3.0])
    values = np.subtract(*relative_gains(ours, theirs))
    assert np.mean(values) == pytest.approx(9 / 5 - 1)
    # Twice as much in every pair: the ratio is certain, though the scores are not.
    assert np.ptp(np.subtract(*relative_gains(2 * theirs, theirs))) == 0.0


def test_a_relative_gains_interval_holds_the_true_ratio() -> None:
    rng = np.random.default_rng(1)
    held = 0
    for _ in range(600):
        luck = rng.normal(0, 1, 8)
        ours, theirs = 12 + luck + rng.normal(0, 1, 8), 10 + luck + rng.normal(0, 1, 8)
        found = mean_interval(np.subtract(*relative_gains(ours, theirs)))
        held += found.low <= 0.2 <= found.high
    assert 0.92 <= held / 600 <= 0.98


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


def test_the_detectable_effect_is_found_as_often_as_it_says() -> None:
    rng = np.random.default_rng(2)
    effect = detectable_effect(5)
    found = [mean_interval(rng.normal(effect, 1, 5)).low > 0 for _ in range(2000)]
    assert np.mean(found) == pytest.approx(0.8, abs=0.03)


def test_what_few_seeds_can_say() -> None:
    assert "nothing can be said" in what_pairs_can_say(0)
    assert "One seed" in what_pairs_can_say(1)
    assert what_pairs_can_say(3) == (
        "With 3 seeds a game's 95 % interval reaches 2.5 standard deviations of the pairs' "
        "differences to each side; a true difference of 3.3 of them shows in 4 of 5 such "
        "evaluations, smaller ones mostly do not. 3 seeds are few: that all of a game's pairs "
        "agree on which is better happens by chance alone in 25 % of games."
    )
    assert "few" in what_pairs_can_say(ENOUGH_PAIRS - 1)
    assert "few" not in what_pairs_can_say(ENOUGH_PAIRS)
