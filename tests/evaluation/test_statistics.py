"""The statistics against literal oracles, printed tables, and the library of Agarwal et al. 2021.

`data/rliable.json` holds that library's numbers and says how they were made.
"""

from __future__ import annotations

import json
import math
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from leap_rl.evaluation.statistics import (
    ENOUGH_SEEDS,
    bootstrap_curve,
    bootstrap_interval,
    detectable_effect,
    improvement_interval,
    interquartile_mean,
    mean_interval,
    paired_difference,
    performance_profile,
    probability_of_improvement,
    relative_gains,
    resample,
    stratified_mean_interval,
    what_seeds_can_say,
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
    assert (mean.high - mean.low) / 2 / error == pytest.approx(quantile, abs=6e-4)


def test_the_interval_of_three_values() -> None:
    mean, low, high, repeats = mean_interval([1.0, 2.0, 3.0])
    assert (mean, repeats) == (2.0, 3)
    assert high - mean == pytest.approx(4.303 / math.sqrt(3), abs=1e-3)
    assert mean - low == pytest.approx(high - mean)


def test_one_value_says_nothing_of_its_spread_and_none_is_refused() -> None:
    assert mean_interval([0.5]) == (0.5, -math.inf, math.inf, 1)
    with pytest.raises(ValueError, match="none"):
        mean_interval([])
    with pytest.raises(ValueError, match="no scores"):
        stratified_mean_interval([np.array([1.0]), np.array([])])


def test_equal_values_are_an_interval_of_no_width() -> None:
    assert mean_interval([0.1, 0.1, 0.1])[1:3] == pytest.approx((0.1, 0.1))


def test_each_game_counts_the_same_and_brings_its_own_spread() -> None:
    games = [np.array([1.0, 3.0]), np.array([10.0, 11.0, 12.0, 19.0])]
    found = stratified_mean_interval(games)
    assert found.mean == pytest.approx((2.0 + 13.0) / 2)
    # Variances of the means: 2/2 and (9 + 4 + 1 + 36)/3/4 by hand.
    a, b = 1.0, 50 / 3 / 4
    degrees = (a + b) ** 2 / (a**2 / 1 + b**2 / 3)
    assert 3 < degrees < 4
    half = found.high - found.mean
    error = math.sqrt(a + b) / 2
    # Between the tables' quantiles for 3 and 4 degrees of freedom.
    assert 2.776 < half / error < 3.182
    assert found.repeats == 6


def test_a_game_with_one_value_leaves_no_interval() -> None:
    found = stratified_mean_interval([np.array([1.0, 3.0]), np.array([4.0])])
    assert (found.mean, found.low, found.high) == (3.0, -math.inf, math.inf)


def test_the_stratified_interval_holds_the_truth_as_often_as_it_says() -> None:
    rng = np.random.default_rng(0)
    held = 0
    for _ in range(600):
        games = [rng.normal(i, 1 + i, 3) for i in range(3)]
        found = stratified_mean_interval(games)
        held += found.low <= 1.0 <= found.high
    # Binomial(600, 0.95): deviation 0.9 %. Satterthwaite's degrees are an approximation.
    assert 0.92 <= held / 600 <= 0.99


def test_a_pairs_common_luck_is_no_part_of_the_differences_spread() -> None:
    luck = np.array([0.0, 100.0, -50.0, 7.0])
    found = paired_difference(luck + np.array([1.0, 2.0, 3.0, 2.0]), luck)
    assert found.mean == pytest.approx(2.0)
    assert found.high - found.low < 3
    with pytest.raises(ValueError, match="against"):
        paired_difference(luck, luck[:2])


def test_a_relative_gain_is_the_ratio_of_the_means() -> None:
    ours, theirs = np.array([1.0, 2.0, 6.0]), np.array([1.0, 1.0, 3.0])
    values = np.subtract(*relative_gains(ours, theirs))
    assert np.mean(values) == pytest.approx(9 / 5 - 1)
    # Twice as much in every pair: the ratio is certain, though the scores are not.
    assert np.ptp(np.subtract(*relative_gains(2 * theirs, theirs))) == 0.0
    with pytest.raises(ValueError, match="share"):
        relative_gains(ours, np.array([-1.0, 0.0, 1.0]))


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
    found = bootstrap_interval(strata(side), interquartile_mean, seed=0)
    assert found.value == pytest.approx(DATA["iqm"][side]["value"], abs=1e-12)
    np.testing.assert_allclose([found.low, found.high], DATA["iqm"][side]["interval"], atol=0.03)


def test_the_interquartile_mean_leaves_out_a_quarter_at_each_end() -> None:
    pooled = sorted(score for game in strata("y") for score in game)
    cut = len(pooled) // 4
    assert interquartile_mean(strata("y")) == pytest.approx(
        np.mean(pooled[cut : len(pooled) - cut])
    )


def test_the_probability_of_improvement_and_its_interval_are_rliables() -> None:
    found = improvement_interval(strata("x"), strata("y"), seed=0)
    assert found.value == pytest.approx(DATA["improvement"]["value"], abs=1e-12)
    np.testing.assert_allclose([found.low, found.high], DATA["improvement"]["interval"], atol=0.02)


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
    found = bootstrap_curve(
        strata("x"), lambda drawn: performance_profile(drawn, thresholds), seed=0
    )
    np.testing.assert_allclose(found.value, DATA["profile"]["value"], atol=1e-12)
    # Shares of 20 agents: one of them up or down.
    np.testing.assert_allclose([found.low, found.high], DATA["profile"]["interval"], atol=0.051)


def test_a_score_at_a_threshold_is_not_above_it() -> None:
    scores = [np.array([1.0, 2.0, 2.0, 3.0])]
    found = performance_profile(scores, np.array([1.0, 2.0, 3.0]))
    np.testing.assert_array_equal(found, [0.75, 0.25, 0.0])


def test_games_are_never_mixed_when_agents_are_redrawn() -> None:
    games = [np.array([0.0, 0.0]), np.array([1.0, 1.0, 1.0])]
    drawn = resample(games, interquartile_mean, seed=0, resamples=50)
    assert drawn.shape == (50,)
    assert set(drawn) == {float(interquartile_mean(games))}


def test_equal_seeds_redraw_equally_and_others_do_not() -> None:
    once, twice, other = (
        resample(strata("x"), interquartile_mean, seed=seed, resamples=20) for seed in (3, 3, 4)
    )
    np.testing.assert_array_equal(once, twice)
    assert not np.array_equal(once, other)


def test_redrawing_a_single_agent_tells_nothing() -> None:
    found = bootstrap_interval([np.array([1.0]), np.array([2.0])], interquartile_mean, seed=0)
    assert found == (1.5, -math.inf, math.inf)
    assert improvement_interval([np.array([1.0])], [np.array([0.0])], seed=0) == (1.0, 0.0, 1.0)


def test_the_detectable_effect_is_found_as_often_as_it_says() -> None:
    rng = np.random.default_rng(2)
    effect = detectable_effect(5)
    found = [mean_interval(rng.normal(effect, 1, 5)).low > 0 for _ in range(2000)]
    assert np.mean(found) == pytest.approx(0.8, abs=0.03)


def test_what_few_seeds_can_say() -> None:
    assert "nothing can be said" in what_seeds_can_say(0)
    assert "One seed" in what_seeds_can_say(1)
    assert what_seeds_can_say(3) == (
        "With 3 seeds a game's 95 % interval reaches 2.5 standard deviations of the pairs' "
        "differences to each side; a true difference of 3.3 of them shows in 4 of 5 such "
        "evaluations, smaller ones mostly do not. 3 seeds are few: that all of a game's pairs "
        "agree on which is better happens by chance alone in 25 % of games."
    )
    assert "few" in what_seeds_can_say(ENOUGH_SEEDS - 1)
    assert "few" not in what_seeds_can_say(ENOUGH_SEEDS)
