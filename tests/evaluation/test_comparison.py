from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

from leap_rl.evaluation.comparison import normalized_scores, summarize
from leap_rl.evaluation.measures import (
    area,
    drawdown,
    final_performance,
    reward_rates,
)
from leap_rl.evaluation.results import EvaluationResults, LearningCurve
from leap_rl.evaluation.statistics import mean_interval, probability_of_improvement
from leap_rl.evaluation.summary import Comparison, Differences
from leap_rl.evaluation.summary_tables import summary_tables
from leap_rl.evaluation.verdict import conclusion_of, verdict_of
from leap_rl.training.rounds.evaluation_slots import RANDOM
from tests.evaluation.agents import agent, evaluation, flat, learner, only

BUDGET = 100_000


def two_games() -> EvaluationResults:
    """Leap, twice as quick in breakout and no better in pong, against random encoders."""
    curves = []
    for seed in range(4):
        curves += [
            learner(RANDOM, "breakout", seed, half=0.5, floor=0),
            learner(RANDOM, "pong", seed, start=-20, end=0, noise=2, luck=1),
            learner("leap", "breakout", seed, half=0.25, floor=0),
            learner("leap", "pong", seed, start=-20, end=0, noise=2, luck=1),
        ]
    return evaluation(curves)


def over_games(comparison: Comparison) -> Differences:
    assert comparison.over_games is not None
    return comparison.over_games


def of(results: EvaluationResults, name: str, game: str, seed: int) -> LearningCurve:
    return next(curve for curve in results.of(name, game) if curve.seed == seed)


def test_a_games_difference_is_the_mean_of_its_pairs() -> None:
    results = two_games()
    summary = summarize(results)
    window = summary.settings["pong"].window
    assert window == 30
    comparison = only(summary)
    found = comparison.games["pong"]
    differences = [
        area(of(results, "leap", "pong", seed), BUDGET)
        - area(of(results, RANDOM, "pong", seed), BUDGET)
        for seed in range(4)
    ]
    assert comparison.pairs == {"breakout": 4, "pong": 4}
    assert found.area == pytest.approx(mean_interval(differences))
    finals = [
        final_performance(of(results, "leap", "pong", seed), BUDGET)
        - final_performance(of(results, RANDOM, "pong", seed), BUDGET)
        for seed in range(4)
    ]
    assert found.final == pytest.approx(mean_interval(finals))
    losses = [
        drawdown(of(results, "leap", "pong", seed), BUDGET, window)
        - drawdown(of(results, RANDOM, "pong", seed), BUDGET, window)
        for seed in range(4)
    ]
    assert found.drawdown == pytest.approx(mean_interval(losses))
    both = [game.drawdown.value for game in comparison.games.values() if game.drawdown]
    # A share is not divided by the deviation of scores.
    assert over_games(comparison).drawdown.value == pytest.approx(np.mean(both))  # type: ignore[union-attr]


def test_over_games_differences_are_in_the_baselines_deviations() -> None:
    results = two_games()
    comparison = only(summarize(results))
    scaled = []
    for game, found in comparison.games.items():
        rates = np.concatenate([reward_rates(curve) for curve in results.of(RANDOM, game)])
        assert found.area is not None
        scaled.append(found.area.value / rates.std())
    area_over_games = over_games(comparison).area
    assert area_over_games is not None
    assert area_over_games.value == pytest.approx(np.mean(scaled))


def test_a_gain_is_a_share_where_no_return_is_negative_and_not_elsewhere() -> None:
    results = two_games()
    comparison = only(summarize(results))
    breakout, pong = comparison.games.values()
    ours, theirs = (
        np.mean([area(curve, BUDGET) for curve in results.of(name, "breakout")])
        for name in ("leap", RANDOM)
    )
    assert breakout.gain is not None
    assert breakout.gain.value == pytest.approx(ours / theirs - 1)
    assert breakout.gain.low < breakout.gain.value < breakout.gain.high
    assert pong.gain is None
    assert over_games(comparison).gain is None
    # As a game in which one can lose points, though few do.
    curves = [
        agent([10, BUDGET], [value, -1.0], initialization=name, seed=seed)
        for name, value in ((RANDOM, 5.0), ("leap", 6.0))
        for seed in range(2)
    ]
    assert over_games(only(summarize(evaluation(curves)))).gain is None


def test_normalized_scores_and_their_interquartile_means() -> None:
    results = two_games()
    summary = summarize(results)
    human = normalized_scores(summary, "leap", "final", "human")
    finals = np.array([final_performance(curve, BUDGET) for curve in results.of("leap", "pong")])
    np.testing.assert_allclose(human["pong"], [(finals + 20.7) / 35.3])
    assert len(summary.aggregates) == 6
    middle = summary.aggregates["leap", "final", "human"]
    pooled = np.sort(np.concatenate(list(human.values()), axis=None))
    assert middle.interquartile_mean.value == pytest.approx(pooled[2:6].mean())
    low, high = middle.interquartile_mean[1:]
    assert low < middle.interquartile_mean.value < high
    assert middle.games == ("breakout", "pong")
    comparison = only(summary)
    sides = [
        [np.array([area(c, BUDGET) for c in results.of(name, game)]) for game in results.games]
        for name in ("leap", RANDOM)
    ]
    improvement = over_games(comparison).improvement
    assert improvement.value == pytest.approx(float(probability_of_improvement(*sides)))


def test_the_level_is_nine_tenths_of_the_baselines_way() -> None:
    def step(when: int, **named: object) -> LearningCurve:
        ends = list(range(1000, BUDGET + 1, 1000))
        returns = [5.0 if end <= when else 15.0 for end in ends]
        return agent(ends, returns, **named)  # type: ignore[arg-type]

    curves = [step(50_000, seed=0), step(60_000, seed=1)]
    curves += [step(20_000, initialization="leap", seed=seed) for seed in (0, 1)]
    summary = summarize(evaluation(curves))
    assert summary.settings["breakout"].level == 14.0
    (table,) = (each for each in summary_tables(summary) if "Every" in each.title)
    reached = [row["agent steps to the baseline's level"] for row in table.rows]
    # The 9th episode after the step is the first with a mean of 14 over 10; of two, the later.
    assert reached == ["69,000", "29,000"]


def test_a_baseline_that_learns_nothing_sets_no_level() -> None:
    curves = [flat(3.0, seed=seed) for seed in (0, 1)]
    curves += [flat(5.0 + seed, initialization="leap", seed=seed) for seed in (0, 1)]
    summary = summarize(evaluation(curves))
    assert math.isnan(summary.settings["breakout"].level)
    # Equal returns: the unit is a raw point.
    found = over_games(only(summary)).area
    assert found is not None
    assert found.value == pytest.approx(2.5)
    assert any("all returns of random are 3" in note for note in summary.verdict)


def test_a_part_of_the_agents_is_judged_by_its_pairs() -> None:
    whole = two_games()
    part = replace(
        whole,
        curves=tuple(
            curve
            for curve in whole.curves
            if not (curve.initialization == "leap" and curve.game == "pong" and curve.seed != 2)
        ),
    )
    summary = summarize(part)
    comparison = only(summary)
    assert comparison.pairs == {"breakout": 4, "pong": 1}
    assert comparison.games["breakout"] == summarize(whole).comparisons[0].games["breakout"]
    found = over_games(comparison).area
    assert found is not None
    assert found.high == math.inf
    assert "nothing says how much of it is chance" in verdict_of(comparison)
    assert "with 1 to 4 seeds" in verdict_of(comparison)
    assert "13 of 16 agents are finished; all that is said is of these." in summary.verdict
    assert math.isinf(summary.aggregates["leap", "area", "baseline"].interquartile_mean.low)


def test_nothing_finished_is_no_error() -> None:
    empty = evaluation([], initializations=[RANDOM, "leap"], games=["pong"], seeds=2)
    summary = summarize(empty)
    assert (summary.aggregates, summary_tables(summary)) == ({}, [])
    assert summary.verdict[:2] == (
        "leap against random: no pair of agents is finished, so nothing can be said.",
        "0 of 4 agents are finished; all that is said is of these.",
    )


def endless(rate: float, **named: object) -> LearningCurve:
    """An agent that earns so much per 1,000 agent steps in an episode that never ends."""
    return replace(agent([], [], **named), rewards=np.full(100, rate))  # type: ignore[arg-type]


def test_an_agent_whose_episode_never_ends_stays_in() -> None:
    curves = [flat(float(seed), seed=seed) for seed in range(3)]
    curves += [flat(seed + 1.0, initialization="leap", seed=seed) for seed in range(2)]
    curves += [endless(9.0, initialization="leap", seed=2)]
    summary = summarize(evaluation(curves))
    comparison = only(summary)
    assert comparison.pairs == {"breakout": 3}
    game = comparison.games["breakout"]
    assert game.area is not None
    assert game.area.value == pytest.approx((1 + 1 + 7) / 3)
    assert game.final is not None
    assert game.final.value == 1.0
    assert "breakout: 1 of 6 agents finished no episode: " in " ".join(summary.verdict)
    silent = [endless(1.0 + seed, seed=seed) for seed in range(2)]
    silent += [endless(3.0 + seed, initialization="leap", seed=seed) for seed in range(2)]
    comparison = only(summarize(evaluation(silent)))
    assert over_games(comparison).final is None
    assert verdict_of(comparison).startswith(
        "leap against random: better in 1 of 1 game; area under the curve +133 % ("
    )
    assert "nothing is known of the final return" in verdict_of(comparison)


def test_without_a_baseline_the_first_is_what_others_are_set_against() -> None:
    curves = [flat(float(seed), initialization="finetuned", seed=seed) for seed in range(2)]
    curves += [flat(seed + 1.0, initialization="leap", seed=seed) for seed in range(2)]
    summary = summarize(evaluation(curves))
    assert (summary.reference, summary.has_baseline) == ("finetuned", False)
    assert summary.comparisons[0].initialization == "leap"
    assert "not against a random one" in " ".join(summary.verdict)
    alone = summarize(evaluation(curves[:2]))
    assert alone.comparisons == ()
    assert "only initialization" in " ".join(alone.verdict)


@pytest.mark.parametrize("game", ["catch", "air_raid"])
def test_a_game_without_human_scores_has_the_baselines_scale_alone(game: str) -> None:
    curves = [learner(name, game, seed) for name in (RANDOM, "leap") for seed in range(3)]
    summary = summarize(evaluation(curves))
    assert {yardstick for _, _, yardstick in summary.aggregates} == {"baseline"}
    assert f"none is human-normalised: {game}." in " ".join(summary.verdict)


def judged(differences: list[float], games: int = 1) -> str:
    """The verdict on areas that differ by so much from a baseline's 10, by seed."""
    names = ["breakout", "assault", "qbert", "seaquest"][:games]
    curves = []
    for game in names:
        for seed, difference in enumerate(differences):
            curves.append(flat(10.0, game=game, seed=seed))
            curves.append(flat(10.0 + difference, initialization="leap", game=game, seed=seed))
    first, _, _ = verdict_of(summarize(evaluation(curves)).comparisons[0]).partition(". ")
    return f"{first}."


def test_verdicts_say_how_sure_they_are() -> None:
    assert judged([2.0]) == (
        "leap against random: better in 1 of 1 game; area under the curve +20 %; with 1 seed "
        "nothing says how much of it is chance."
    )
    # Student's: 1 ± 4.303 · 1/√3.
    assert judged([0.0, 1.0, 2.0]) == (
        "leap against random: better in 1 of 1 game; area under the curve +10 % (95 % interval "
        "-15 % to +35 %); with 3 seeds this is not enough to tell."
    )
    assert judged([1.9, 2.0, 2.1], games=4).startswith(
        "leap against random: better in 4 of 4 games; area under the curve +20 % (95 % interval "
    )
    assert judged([1.9, 2.0, 2.1]).endswith("more than chance explains, but 3 seeds are few.")
    assert judged([1.9, 2.0, 2.1] * 2).endswith("with 6 seeds more than chance explains.")
    assert judged([-1.9, -2.0, -2.1]).startswith("leap against random: better in 0 of 1 game;")
    assert judged([0.0, 0.0]) == (
        "leap against random: better in 0 of 1 game; area under the curve +0 % (95 % interval +0 % "
        "to +0 %); with 2 seeds no agent differs from its pair."
    )


def test_negative_scores_are_judged_in_deviations() -> None:
    curves = [
        learner(name, "pong", seed, start=-20, end=0, half=half)
        for name, half in ((RANDOM, 0.6), ("leap", 0.3))
        for seed in range(6)
    ]
    comparison = only(summarize(evaluation(curves)))
    assert conclusion_of(comparison) == "better"
    assert "area under the curve +" in verdict_of(comparison)
    assert "deviations of random's reward rates (95 % interval +" in verdict_of(comparison)
    swapped = evaluation(curves, initializations=["leap", RANDOM])
    assert conclusion_of(only(summarize(swapped))) == "worse"


def test_many_intervals_leave_out_0_by_chance_and_the_notes_say_so() -> None:
    games = ["breakout", "assault", "qbert", "seaquest", "asterix"]
    curves = [
        flat(10.0 + seed, initialization=name, game=game, seed=seed)
        for name in (RANDOM, "leap", "other")
        for game in games
        for seed in range(2)
    ]
    assert "Of 10 intervals of single games some 0.5" in " ".join(
        summarize(evaluation(curves)).verdict
    )
