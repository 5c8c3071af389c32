"""Groups of meta-training runs: their intervals, their starts, and the verdict on them."""

from __future__ import annotations

import math
from dataclasses import replace
from itertools import product

import numpy as np
import pytest
from scipy import stats

from leap_rl.evaluation.comparison import NON_INFERIORITY, summarize
from leap_rl.evaluation.measures import area, final_performance, first_performance
from leap_rl.evaluation.results import EvaluationResults, LearningCurve
from leap_rl.evaluation.statistics import (
    bootstrap,
    interquartile_mean,
    probability_of_improvement,
    redraw,
    runs_by_agents_interval,
    stratified_mean_interval,
)
from leap_rl.evaluation.verdict import conclusion_of, verdict_of
from leap_rl.training.rounds.evaluation_slots import RANDOM
from tests.evaluation.agents import agent, evaluation, flat, learner, only

BUDGET = 100_000


def drawn(
    rng: np.random.Generator, *, games: int, runs: int, seeds: int, between_runs: float
) -> list[np.ndarray]:
    """Values [K, n] by game, mean 0; half of the variance between runs is one for all games."""
    share = math.sqrt(0.5) * between_runs
    of_runs = share * rng.standard_normal((runs, 1))
    return [
        of_runs
        + share * rng.standard_normal((runs, 1))
        + rng.standard_normal(seeds)
        + rng.standard_normal((runs, seeds))
        for _ in range(games)
    ]


def test_one_run_has_the_interval_over_its_seeds() -> None:
    games = drawn(np.random.default_rng(0), games=3, runs=1, seeds=4, between_runs=1.0)
    assert runs_by_agents_interval(games) == pytest.approx(
        stratified_mean_interval([game[0] for game in games])
    )


def test_the_interval_over_runs_and_seeds_is_that_of_its_definition() -> None:
    """One game of two runs and three seeds, by hand."""
    game = np.array([[1.0, 2.0, 6.0], [3.0, 8.0, 10.0]])
    found = runs_by_agents_interval([game])
    assert found.value == 5.0
    over_seeds = stats.t.ppf(0.975, 2) * np.std([2.0, 5.0, 8.0], ddof=1) / math.sqrt(3)
    over_runs = stats.t.ppf(0.975, 1) * np.std([3.0, 7.0], ddof=1) / math.sqrt(2)
    assert found.high - found.value == pytest.approx(math.sqrt(over_seeds**2 + over_runs**2))
    assert found.value - found.low == pytest.approx(found.high - found.value)


def test_a_run_is_one_run_in_all_games() -> None:
    """Runs that differ alike in all games leave as much to chance as in one game."""
    rng = np.random.default_rng(1)
    one = drawn(rng, games=1, runs=3, seeds=200, between_runs=0.0)[0]
    one += 100 * np.array([[-1.0], [0.0], [1.0]])
    alike, opposed = runs_by_agents_interval([one, one]), runs_by_agents_interval([one, one[::-1]])
    assert alike.high - alike.low == pytest.approx(
        np.ptp(runs_by_agents_interval([one])[1:]), rel=1e-3
    )
    assert opposed.high - opposed.low < 0.02 * (alike.high - alike.low)


def test_both_sides_runs_leave_something_to_chance() -> None:
    rng = np.random.default_rng(2)
    ours, theirs = (drawn(rng, games=1, runs=runs, seeds=5, between_runs=1.0) for runs in (3, 2))
    found = runs_by_agents_interval(ours, [-theirs[0]])
    assert found.value == pytest.approx(ours[0].mean() - theirs[0].mean())
    seeds = ours[0].mean(axis=0) - theirs[0].mean(axis=0)
    halves = [
        stats.t.ppf(0.975, len(x) - 1) * np.std(x, ddof=1) / math.sqrt(len(x))
        for x in (seeds, ours[0].mean(axis=1), theirs[0].mean(axis=1))
    ]
    assert found.high - found.value == pytest.approx(np.linalg.norm(halves))


def test_a_single_seed_or_none_says_nothing_of_others() -> None:
    assert runs_by_agents_interval([np.ones((3, 1))]) == (1.0, -math.inf, math.inf)
    for side in ([], [np.ones((3, 0))]):
        with pytest.raises(ValueError, match="no scores"):
            runs_by_agents_interval(side)


@pytest.mark.parametrize(("runs", "between_runs"), [(2, 2.0), (5, 1.0)])
def test_the_interval_holds_the_truth_as_often_as_it_says(runs: int, between_runs: float) -> None:
    rng = np.random.default_rng([runs, int(between_runs)])
    held = 0
    for _ in range(400):
        games = drawn(rng, games=2, runs=runs, seeds=5, between_runs=between_runs)
        found = runs_by_agents_interval(games)
        held += found.low <= 0 <= found.high
    # Binomial(400, 0.95): deviation 1.1 %. The interval is rather too wide.
    assert held / 400 >= 0.925


def test_runs_are_redrawn_first_for_all_games_and_then_seeds() -> None:
    """A value names its run and seed, so that each draw can be read."""
    games = [np.array([[run + seed / 100 + 10 * game for seed in range(2 + game)]
                       for run in range(3)]) for game in range(2)]  # fmt: skip
    first, second = redraw(games, np.random.default_rng(0), 50)
    assert (first.shape, second.shape) == ((50, 6), (50, 9))
    runs = np.floor(first).reshape(50, 3, 2)
    seeds = np.round(100 * (first.reshape(50, 3, 2) - runs))
    assert (runs == runs[:, :, :1]).all()  # a run brings all its seeds
    assert (seeds == seeds[:, :1]).all()  # and a seed is drawn for all runs
    assert (np.floor(second.reshape(50, 3, 3)[:, :, 0] - 10) == runs[:, :, 0]).all()
    assert {tuple(row) for row in runs[:, :, 0]} > {(0, 0, 0), (0, 1, 2)}
    assert len(np.unique(seeds[:, 0], axis=0)) == 4


def test_the_bootstraps_spread_is_that_of_both_levels() -> None:
    """Of a mean of K runs and n seeds: the pigeonhole bootstrap's variance in closed form."""
    game = drawn(np.random.default_rng(3), games=1, runs=4, seeds=6, between_runs=1.0)[0]
    (drawn_again,) = redraw([game], np.random.default_rng(0), 40_000)
    means = drawn_again.mean(axis=1)
    runs, seeds = game.mean(axis=1), game.mean(axis=0)
    rest = game - runs[:, None] - seeds + game.mean()
    expected = np.var(runs) / 4 + np.var(seeds) / 6 + np.var(rest) / 24
    assert np.var(means) == pytest.approx(expected, rel=0.03)


def test_a_bootstrap_over_runs_is_wider_than_one_over_their_pooled_agents() -> None:
    games = drawn(np.random.default_rng(4), games=2, runs=3, seeds=5, between_runs=2.0)
    pooled = [game.ravel() for game in games]
    theirs = [np.zeros((1, 5))] * 2
    for statistic, sides in (
        (interquartile_mean, ()),
        (probability_of_improvement, (theirs,)),
    ):
        nested, flat = (bootstrap(statistic, x, *sides, seed=0) for x in (games, pooled))
        assert nested[0] == flat[0]
        assert nested[2] - nested[1] > 1.1 * (flat[2] - flat[1])


def group(
    runs: int = 3, seeds: int = 4, *, halves: tuple[float, ...] = (0.25, 0.35, 0.3)
) -> EvaluationResults:
    """Leap's runs, some quicker than others, against random starts in two games."""
    return evaluation(
        [
            *(
                learner("leap", game, seed, half=halves[run % len(halves)], floor=0, run=run)
                for run, game, seed in product(range(runs), ("breakout", "catch"), range(seeds))
            ),
            *(
                learner(RANDOM, game, seed, half=0.5, floor=0)
                for game, seed in product(("breakout", "catch"), range(seeds))
            ),
        ],
        initializations=[RANDOM, "leap"],
    )


def areas(results: EvaluationResults, name: str, game: str, run: int = 0) -> np.ndarray:
    return np.array([area(c, BUDGET) for c in results.of(name, game) if c.run == run])


def test_each_run_is_set_against_the_same_baseline() -> None:
    results = group()
    comparison = only(summarize(results))
    assert (comparison.runs, comparison.reference_runs) == (3, None)
    assert comparison.pairs == {"breakout": 4, "catch": 4}
    differences = np.array(
        [areas(results, "leap", "catch", run) - areas(results, RANDOM, "catch") for run in range(3)]
    )
    found = comparison.games["catch"].area
    assert found == pytest.approx(runs_by_agents_interval([differences]))


def test_a_groups_gain_is_the_ratio_of_the_means() -> None:
    results = group()
    gain = only(summarize(results)).games["breakout"].gain
    assert gain is not None
    ours = np.mean([areas(results, "leap", "breakout", run) for run in range(3)])
    assert gain.value == pytest.approx(ours / np.mean(areas(results, RANDOM, "breakout")) - 1)
    assert gain.low < gain.value < gain.high


def test_what_holds_for_one_run_is_said_to() -> None:
    several = verdict_of(only(summarize(group())))
    assert "with 3 runs of 4 seeds" in several
    assert "one run" not in several
    one = summarize(group(runs=1))
    assert verdict_of(only(one)).endswith(
        "This holds for this one run of leap, not for its method."
    )
    alone = evaluation([learner(name, "catch", s) for name in ("leap", "maml") for s in range(3)])
    assert verdict_of(only(summarize(alone))).endswith(
        "This holds for this one run of each, not for their methods."
    )
    note = "Intervals of leap speak of other runs of the same method too."
    assert note in " ".join(summarize(group()).verdict)
    assert note not in " ".join(one.verdict)


def with_own_starts(runs: int) -> EvaluationResults:
    """Leap learns no better than from its own starts, which are better than fresh ones."""
    groups = {RANDOM: (1, 0.6), "leap": (runs, 0.3), "leap@0": (runs, 0.3)}
    curves = [
        learner(name, "breakout", seed, half=half, floor=0, run=run)
        for name, (count, half) in groups.items()
        for run, seed in product(range(count), range(6))
    ]
    return evaluation(curves, own_starts={"leap": "leap@0"})


def test_runs_are_set_against_their_own_starts_too() -> None:
    results = with_own_starts(3)
    summary = summarize(results)
    against = {each.reference: each for each in summary.comparisons}
    assert list(against) == [RANDOM, "leap@0"]
    assert {each.initialization for each in against.values()} == {"leap"}
    assert conclusion_of(against[RANDOM]) == "better"
    assert conclusion_of(against["leap@0"]) == "open"
    # Each run against its own start.
    differences = np.array(
        [
            areas(results, "leap", "breakout", run) - areas(results, "leap@0", "breakout", run)
            for run in range(3)
        ]
    )
    found = against["leap@0"].games["breakout"].area
    assert found == pytest.approx(runs_by_agents_interval([differences]))
    assert "compare their bands with those of" in " ".join(summary.verdict)
    others = tuple(curve for curve in results.curves if curve.initialization != RANDOM)
    alone = summarize(replace(results, initializations=("leap", "leap@0"), curves=others))
    assert only(alone).reference == "leap@0"
    assert "not against a random one" not in " ".join(alone.verdict)
    one = summarize(with_own_starts(1)).comparisons[1]
    assert verdict_of(one).endswith("This holds for this one run of leap, not for its method.")


def test_groups_of_other_runs_are_two_samples() -> None:
    curves = [
        learner(name, "catch", seed, run=run, floor=0)
        for name, runs in (("maml", 2), ("leap", 3))
        for run, seed in product(range(runs), range(4))
    ]
    results = evaluation(curves)
    found = only(summarize(results)).games["catch"].area
    ours, theirs = (
        np.array([areas(results, name, "catch", run) for run in range(runs)])
        for name, runs in (("leap", 3), ("maml", 2))
    )
    assert found == pytest.approx(runs_by_agents_interval([ours], [-theirs]))


def test_a_restarted_task_takes_its_pairs_along() -> None:
    curves = [flat(10.0, seed=seed, restarted=seed == 0) for seed in range(5)]
    for run, seed in product(range(2), range(5)):
        # What seed 1 of the other run earns must not count either.
        value = 999.0 if seed < 2 else 11.0 + run
        restarted = (run, seed) == (1, 1)
        curves.append(flat(value, initialization="leap", seed=seed, run=run, restarted=restarted))
    summary = summarize(evaluation(curves))
    comparison = only(summary)
    assert comparison.pairs == {"breakout": 3}
    found = comparison.games["breakout"]
    assert found.area is not None
    assert found.area.value == pytest.approx(1.5)
    assert found.improvement.value == 1.0
    assert "breakout: 2 of 15 agents diverged and were restarted " in " ".join(summary.verdict)


def ending(final: float, name: str, seed: int) -> LearningCurve:
    """Returns of 0 in the first half, and of `final` in the second."""
    ends = range(1000, BUDGET + 1, 1000)
    return agent(ends, [0.0] * 50 + [final] * 50, initialization=name, seed=seed)


@pytest.mark.parametrize(
    ("finals", "said"),
    [
        ([10.5, 10.6, 10.7, 10.8], "better"),
        ([9.4, 9.6, 10.0, 10.2], "not inferior"),
        ([8.0, 9.0, 10.0, 11.0], "open"),
        ([8.5, 8.6, 8.7, 8.6], "inferior"),
    ],
)
def test_the_final_return_is_judged_by_a_margin(finals: list[float], said: str) -> None:
    curves = [ending(10.0, RANDOM, seed) for seed in range(4)]
    curves += [ending(final, "leap", seed) for seed, final in enumerate(finals)]
    summary = summarize(evaluation(curves))
    comparison, scale = only(summary), summary.settings["breakout"].scale
    baseline = curves[0]
    assert first_performance(baseline, BUDGET) == 0.0
    assert final_performance(baseline, BUDGET) == 10.0
    assert scale is not None
    assert comparison.final_margin == pytest.approx(NON_INFERIORITY * 10.0 / scale.unit)
    verdict = verdict_of(comparison)
    assert f"; final return {said}: " in verdict
    assert f", margin {comparison.final_margin:.2f}." in verdict
    assert ". Probability of improvement " in verdict
    assert "; interquartile mean of normalised areas " in verdict


@pytest.mark.parametrize("final", [0.0, -5.0])
def test_a_reference_that_gains_nothing_sets_no_margin(final: float) -> None:
    curves = [ending(final, RANDOM, seed) for seed in range(3)]
    curves += [ending(final + 0.1 * (seed - 1), "leap", seed) for seed in range(3)]
    comparison = only(summarize(evaluation(curves)))
    assert comparison.final_margin == 0.0
    assert "final return open, as random gained nothing to set a margin by" in (
        verdict_of(comparison)
    )


def test_there_is_no_relative_gain_over_nothing() -> None:
    curves = [ending(0.0, RANDOM, seed) for seed in range(3)]
    curves += [ending(0.1 * seed, "leap", seed) for seed in range(3)]
    assert only(summarize(evaluation(curves))).games["breakout"].gain is None
