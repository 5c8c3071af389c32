from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

from leap_rl.evaluation.measures import (
    agent_steps_to,
    area,
    drawdown,
    final_performance,
    first_performance,
    grid,
    moving_mean,
    on_grid,
    reward_rates,
    window_of,
)
from tests.evaluation.agents import agent

NOBODY = agent([], [])


def test_the_moving_mean_is_over_the_newest_episodes() -> None:
    returns = np.random.default_rng(0).normal(1e4, 1e3, 50)
    literal = [np.mean(returns[max(0, i - 6) : i + 1]) for i in range(50)]
    np.testing.assert_allclose(moving_mean(returns, 7), literal, rtol=1e-12)


def test_the_window_is_the_papers_or_a_tenth_of_what_there_is() -> None:
    long = [agent(range(1, 20_001), [0.0] * 20_000)] * 3
    short = [agent(range(1, count + 1), [0.0] * count) for count in (60, 80, 400)]
    assert window_of(long) == 500
    assert window_of(short) == 8
    assert window_of([NOBODY]) == window_of([]) == 1


def test_the_grid_ends_with_the_budget() -> None:
    assert grid(1000).tolist() == list(range(5, 1001, 5))


def test_on_the_grid_the_curve_is_what_ended_last() -> None:
    one = agent([100, 250, 600], [1.0, 3.0, 8.0])
    found = on_grid(one, np.array([50, 100, 249, 250, 700]), 2)
    np.testing.assert_array_equal(found, [np.nan, 1.0, 1.0, 2.0, 5.5])
    assert np.isnan(on_grid(NOBODY, grid(1000), 2)).all()


def test_the_area_is_all_that_was_earned_by_a_thousand_agent_steps() -> None:
    one = agent([100, 250, 600], [1.0, 3.0, 8.0], budget=1000)
    assert area(one, 1000) == 12.0
    assert area(agent([40], [6.0], budget=4000), 4000) == 1.5
    assert area(replace(NOBODY, rewards=np.full(100, 0.25)), 100_000) == 0.25
    assert area(NOBODY, 100_000) == 0.0


def test_the_area_is_that_under_the_drawn_rates() -> None:
    rng = np.random.default_rng(1)
    one = replace(NOBODY, interval_ends=np.array([30, 50, 1000]), rewards=rng.normal(5, 2, 3))
    rates = reward_rates(one)
    np.testing.assert_allclose(rates * [0.03, 0.02, 0.95], one.rewards)
    drawn = np.repeat(rates, [30, 20, 950])  # a rate for every agent step
    assert area(one, 1000) == pytest.approx(drawn.mean())


def test_the_first_and_the_final_performance_are_of_a_tenth_of_the_budget() -> None:
    one = agent([50, 100, 101, 900, 901, 1000], [1.0, 3.0, 50.0, 60.0, 5.0, 7.0])
    assert first_performance(one, 1000) == 2.0
    assert final_performance(one, 1000) == 6.0
    late = agent([400, 500], [1.0, 2.0])
    assert (first_performance(late, 1000), final_performance(late, 1000)) == (1.0, 2.0)
    assert math.isnan(first_performance(NOBODY, 1000))
    assert math.isnan(final_performance(NOBODY, 1000))


def test_a_level_is_reached_by_a_full_window_alone() -> None:
    one = agent([10, 20, 30, 40, 50], [9.0, 1.0, 5.0, 7.0, 9.0])
    assert agent_steps_to(one, 6.0, 2) == 40
    assert agent_steps_to(one, 5.0, 2) == 20
    assert agent_steps_to(one, 6.0, 1) == 10
    assert agent_steps_to(one, 8.5, 2) == math.inf
    assert agent_steps_to(one, 6.0, 6) == agent_steps_to(NOBODY, 6.0, 1) == math.inf
    assert math.isnan(agent_steps_to(one, math.nan, 2))


def test_the_drawdown_is_the_share_that_was_lost_of_what_had_been_gained() -> None:
    rising = agent([100, 200, 300], [1.0, 5.0, 9.0])
    assert drawdown(rising, 1000, 1) == 0.0
    unsteady = agent([100, 200, 300, 400], [1.0, 5.0, 2.0, 4.0])
    # From 100 to 200 nothing is gained; then 4 are, of which 3 are lost until 400, then 1.
    assert drawdown(unsteady, 1000, 1) == pytest.approx((100 * 3 + 600 * 1) / (800 * 4))
    # Of any scale of scores.
    scaled = agent([100, 200, 300, 400], [-20.0, 20.0, -10.0, 10.0])
    assert drawdown(scaled, 1000, 1) == pytest.approx(drawdown(unsteady, 1000, 1))
    falling = agent([100, 200], [5.0, 1.0])
    assert drawdown(falling, 1000, 1) == 1.0
    assert drawdown(falling, 1000, 2) == 0.0
    assert math.isnan(drawdown(falling, 1000, 3))
    assert math.isnan(drawdown(NOBODY, 1000, 1))
    assert drawdown(agent([1000], [1.0]), 1000, 1) == 0.0
