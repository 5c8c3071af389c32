"""Agent steps saved and speed-ups against the literal oracle, and their limiting cases."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import partial
from itertools import product

import numpy as np
import pytest

from leap_rl.evaluation.measures import Agents, grid, means_of, measure, smoothed
from leap_rl.evaluation.results import LearningCurve
from leap_rl.evaluation.savings import (
    Reference,
    SpeedUp,
    agent_steps_saved,
    make_reference,
    most_that_can_be_saved,
    reached,
    sample,
    speed_up,
)
from leap_rl.evaluation.statistics import IntervalEstimate, jackknife, sampled_interval
from tests.evaluation import oracle
from tests.evaluation.agents import agent, flat, learner

BUDGET = 20_000


def drawn(rng: np.random.Generator, *, late: bool = False, fast: float = 1.0) -> LearningCurve:
    """An agent of any shape: few or many episodes, gaps, late ends, noise, negative returns."""
    count = int(rng.integers(45, 160))
    ends = np.sort(rng.choice(np.arange(1, BUDGET + 1), count, replace=False))
    if rng.random() < 0.5:  # a gap wider than a window
        ends = ends[(ends < 8_000) | (ends > 12_000)]
    if late:
        ends = ends[ends > 3_000]
    rise = 1 / (1 + np.exp(-10 * (fast * ends / BUDGET - rng.uniform(0.3, 0.7))))
    returns = (
        -30 + 40 * rise * rng.uniform(0.6, 1.2) + rng.uniform(0, 6) * rng.normal(size=len(ends))
    )
    return agent(ends.tolist(), returns.tolist(), budget=BUDGET)


def plain(curves: Sequence[LearningCurve]) -> list[oracle.Agent]:
    return [
        tuple(zip(map(float, one.agent_steps), one.returns.tolist(), strict=True)) for one in curves
    ]


def reference_of(curves: Sequence[LearningCurve], budget: int = BUDGET) -> Reference:
    return make_reference(curves, budget)


def agents_of(curves: Sequence[LearningCurve], reference: Reference) -> Agents:
    return measure(curves, reference.budget, reference.windows)


def close(found: IntervalEstimate, expected: Sequence[float]) -> None:
    np.testing.assert_allclose(found, expected, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("seed", range(4))
def test_all_of_a_comparison_is_the_oracles(seed: int) -> None:
    rng = np.random.default_rng(seed)
    games, samples, others = [], [], []
    # Runs with unequal numbers of agents; one run alone; agents whose first episode ends late.
    sizes = [(5,), (3, 4), (4, 3, 3), (3, 3, 3, 5)][seed]
    for game in range(2):
        random = [drawn(rng, late=game == 1 and i == 0) for i in range(6)]
        ours, theirs = (
            [[drawn(rng, fast=fast) for _ in range(size + game * (seed == 0))] for size in of]
            for fast, of in ((1.6, sizes), (1.2, (3, 3)))
        )
        reference = reference_of(random)
        assert reference.windows == oracle.windows_of(plain(random), BUDGET)
        sides = [[agents_of(run, reference) for run in side] for side in (ours, theirs)]
        statistic = partial(agent_steps_saved, budget=BUDGET)
        samples.append(sample(statistic, sides[0], reference))
        others.append(sample(statistic, sides[1], reference))
        mean = oracle.side_of([plain(random)], BUDGET, reference.windows[:2])
        curve = [math.nan if value is None else value for value in mean.curve]
        np.testing.assert_allclose(reference.means.curve, curve, rtol=1e-11)
        assert (reference.means.first, reference.means.final) == pytest.approx(
            (mean.first, mean.final), rel=1e-12
        )
        assert most_that_can_be_saved(reference) == pytest.approx(oracle.most(BUDGET, mean))
        literal = [([plain(run) for run in ours], plain(random))]
        saved = oracle.estimate(oracle.saved(BUDGET), literal, BUDGET)
        close(sampled_interval([samples[-1]]), saved)
        assert saved[1] < saved[0] < saved[2]
        games.append((*literal[0], [plain(run) for run in theirs]))
        own = oracle.side_of(literal[0][0], BUDGET, reference.windows[:2])
        for share in (0.5, 0.9):
            level = mean.first + share * (mean.final - mean.first)
            at = oracle.reached(own.curve, level, BUDGET)
            assert reached(means_of(sides[0]).curve, level, BUDGET) == pytest.approx(at)
            then = oracle.reached(mean.curve, level, BUDGET)
            if not (at[1] or then[1]):
                found = speed_up(sides[0], reference, share)
                assert found is not None
                assert found.times == pytest.approx(then[0] / at[0])
    both = [(ours, random) for ours, random, _ in games]
    close(sampled_interval(samples), oracle.estimate(oracle.saved(BUDGET), both, BUDGET))
    against = oracle.estimate(
        oracle.saved(BUDGET), both, BUDGET, minus=[theirs for *_, theirs in games]
    )
    close(sampled_interval(samples, others), against)


def test_a_speed_ups_interval_is_the_oracles() -> None:
    random = [learner("random", "breakout", seed, half=0.6) for seed in range(5)]
    runs = [[learner("leap", "breakout", s, half=0.3, run=r) for s in range(3)] for r in range(3)]
    reference = reference_of(random, 100_000)

    def logarithm(ours: oracle.Side, theirs: oracle.Side) -> float:
        level = theirs.first + 0.5 * (theirs.final - theirs.first)
        at, then = (oracle.reached(side.curve, level, 100_000)[0] for side in (ours, theirs))
        return math.log(then / at)

    expected = oracle.estimate(logarithm, [([plain(r) for r in runs], plain(random))], 100_000)
    found = speed_up([agents_of(run, reference) for run in runs], reference, 0.5)
    assert found is not None
    assert found.bound == ""
    np.testing.assert_allclose([found.times, found.low, found.high], np.exp(expected), rtol=1e-9)


def test_the_variance_of_a_curve_is_that_of_its_windows_mean() -> None:
    one = drawn(np.random.default_rng(5))
    _, variances = smoothed(one, BUDGET)
    for point in (40, 150):
        at = grid(BUDGET)[point]
        inside = one.returns[np.abs(one.agent_steps - at) <= BUDGET / 20]
        expected = np.var(inside, ddof=1) / len(inside) if len(inside) > 1 else math.nan
        assert variances[point] == pytest.approx(expected, rel=1e-9, nan_ok=True)


def test_the_same_agents_save_exactly_nothing_and_others_like_them_about_nothing() -> None:
    random = [learner("random", "breakout", seed) for seed in range(8)]
    reference = reference_of(random, 100_000)
    statistic = partial(agent_steps_saved, budget=100_000)
    same = sample(statistic, [agents_of(random, reference)], reference)
    assert same.value == 0.0
    others = [[learner("other", "breakout", s, run=run) for s in range(6)] for run in range(4)]
    found = sampled_interval(
        [sample(statistic, [agents_of(run, reference) for run in others], reference)]
    )
    assert found.low < 0 < found.high
    assert found.high - found.low < 30_000


def step(when: float, *, low: float = 0.0, high: float = 10.0, seed: int = 0) -> LearningCurve:
    """Returns that jump at a share of 100,000 agent steps."""
    ends = np.arange(500, 100_001, 500)
    wobble = 1e-3 * np.sin(np.arange(len(ends)) + seed)
    returns = np.where(ends <= when * 100_000, low, high) + wobble
    return agent(ends.tolist(), returns.tolist(), seed=seed)


@pytest.mark.parametrize(
    ("ours", "bound", "times"),
    [(2.0, "at most", 0.5), (-1.0, "at least", 100.0), (0.25, "", 2.0)],
    ids=["never there", "there at once", "between"],
)
def test_a_speed_up_that_is_not_seen_whole_is_a_bound(
    ours: float, bound: str, times: float
) -> None:
    reference = reference_of([step(0.5, seed=seed) for seed in range(6)], 100_000)
    runs = [agents_of([step(ours, seed=seed) for seed in range(3)], reference)] * 2
    found = speed_up(runs, reference, 0.5)
    assert found is not None
    assert (found.bound, found.times) == (bound, pytest.approx(times, rel=0.01))
    assert math.isfinite(found.times)
    if bound:
        assert found == SpeedUp(found.times, found.bound)


def test_a_speed_up_bounded_to_both_sides_tells_nothing() -> None:
    # Random agents peak in the middle and end below half of their gain's level for q above 1.
    reference = reference_of([step(0.5, seed=seed) for seed in range(6)], 100_000)
    runs = [agents_of([step(2.0)], reference)]
    assert speed_up(runs, reference, 1.5) is None


def test_a_curve_is_never_filled_backwards() -> None:
    late = agent([7_000, 9_000], [1.0, 2.0], budget=BUDGET)
    curve, _ = smoothed(late, BUDGET)
    assert np.isnan(curve[:69]).all()
    assert np.isfinite(curve[69:]).all()
    assert curve[-1] == 2.0
    assert np.isnan(smoothed(agent([], []), BUDGET)[0]).all()


def gains(values: Sequence[float], *, noise: float = 0.0, episodes: int = 200) -> Reference:
    ends = np.linspace(BUDGET / episodes, BUDGET, episodes).astype(int)
    swings = noise * (-1.0) ** np.arange(episodes)  # which cancel out over a window
    curves = [
        agent(
            ends.tolist(),
            (gain * ends / BUDGET + swings).tolist(),
            budget=BUDGET,
        )
        for gain in values
    ]
    return reference_of(curves)


@pytest.mark.parametrize(
    ("reference", "verdict"),
    [
        (gains([10, 11, 12, 10, 11]), "sound"),
        (gains([1, 10, 2, 12, 6]), "uncertain"),
        (gains([1, 1.1, 1.2, 1, 1.1], noise=2.5), "uncertain"),
        (gains([-1, 1, -2, 2, 0.5]), "no gain"),
        (gains([-10, -11, -12, -10, -11]), "no gain"),
        (gains([10, 11, 12, 10, 11], episodes=15), "long episodes"),
        (gains([10, 11]), "uncertain"),
        (gains([10, 10.1, 10.2, 10]), "uncertain"),
        (gains([10]), "uncertain"),
        (gains([-10, -11]), "no gain"),
    ],
)
def test_a_reference_is_judged(reference: Reference, verdict: str) -> None:
    assert reference.verdict == verdict
    assert reference.learns == (verdict in ("sound", "uncertain"))
    assert (reference.more_agents > 0) == (verdict == "uncertain")


def test_so_many_more_agents_settle_it() -> None:
    few = gains([4, 10, 7])
    assert few.more_agents >= 2  # of at least five
    values = [1, 10, 2, 12, 6]
    more = gains(values).more_agents
    assert gains(values + (values * 9)[: 3 * more]).verdict == "sound"
    noisy = gains([1, 1.1, 1.2, 1, 1.1] * 2, noise=3)
    assert noisy.more_agents == math.ceil(10 * (noisy.noise / 0.1) ** 2) - 10


def test_a_reference_that_gains_nothing_at_all_measures_nothing() -> None:
    reference = reference_of([flat(3.0, budget=BUDGET, seed=seed) for seed in range(5)])
    ours = [agents_of([flat(5.0, budget=BUDGET)], reference)]
    assert math.isnan(agent_steps_saved(means_of(ours), reference.means, BUDGET))


def test_too_few_agents_leave_no_interval() -> None:
    rng = np.random.default_rng(0)
    statistic = partial(agent_steps_saved, budget=BUDGET)
    for (runs, agents), random in product(((1, 3), (2, 2), (2, 3)), (4, 5)):
        reference = reference_of([drawn(rng) for _ in range(random)])
        ours = [agents_of([drawn(rng) for _ in range(agents)], reference) for _ in range(runs)]
        found = sampled_interval([sample(statistic, ours, reference)])
        assert math.isfinite(found.value)
        assert math.isfinite(found.low) == (agents >= 3 and random >= 5)


def test_games_that_lack_runs_have_no_common_interval() -> None:
    rng = np.random.default_rng(1)
    statistic = partial(agent_steps_saved, budget=BUDGET)
    reference = reference_of([drawn(rng) for _ in range(5)])
    runs = [agents_of([drawn(rng) for _ in range(3)], reference) for _ in range(3)]
    whole, part = (sample(statistic, of, reference) for of in (runs, runs[:2]))
    assert math.isfinite(sampled_interval([whole, whole]).low)
    assert math.isinf(sampled_interval([whole, part]).low)


def test_the_jackknife_of_a_mean_is_its_standard_errors_square() -> None:
    values = np.array([1.0, 4.0, 2.5, 7.0])
    left_out = (values.sum() - values) / 3
    assert jackknife(left_out) == pytest.approx((np.var(values, ddof=1) / 4, 3))
