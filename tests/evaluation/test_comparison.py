from __future__ import annotations

import math
import re
from dataclasses import replace

import numpy as np
import pytest

from leap_rl.evaluation.comparison import normalized_scores, summarize
from leap_rl.evaluation.measures import (
    area,
    drawdown,
    final_performance,
    grid,
    on_grid,
    reward_rates,
)
from leap_rl.evaluation.results import Evaluation, LearningCurve
from leap_rl.evaluation.statistics import mean_interval, probability_of_improvement
from leap_rl.evaluation.verdict import conclusion_of, notes_of, verdict_of
from leap_rl.training.rounds.agents import RANDOM
from tests.evaluation.agents import agent, evaluation, learner

BUDGET = 100_000


def flat(returns: float, **named: object) -> LearningCurve:
    """An agent whose every episode has the same return."""
    ends = range(1000, BUDGET + 1, 1000)
    return agent(ends, [returns] * 100, **named)  # type: ignore[arg-type]


def two_games() -> Evaluation:
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


def of(results: Evaluation, name: str, game: str, seed: int) -> LearningCurve:
    return next(curve for curve in results.of(name, game) if curve.seed == seed)


def test_a_games_difference_is_the_mean_of_its_pairs() -> None:
    results = two_games()
    summary = summarize(results)
    window = summary.settings["pong"].window
    assert window == 30
    (comparison,) = summary.comparisons
    found = comparison.games[1]
    differences = [
        area(of(results, "leap", "pong", seed), BUDGET)
        - area(of(results, RANDOM, "pong", seed), BUDGET)
        for seed in range(4)
    ]
    assert (found.game, found.seeds) == ("pong", 4)
    assert found.area_difference == pytest.approx(mean_interval(differences))
    finals = [
        final_performance(of(results, "leap", "pong", seed), BUDGET)
        - final_performance(of(results, RANDOM, "pong", seed), BUDGET)
        for seed in range(4)
    ]
    assert found.final_difference == pytest.approx(mean_interval(finals))
    losses = [
        drawdown(of(results, "leap", "pong", seed), BUDGET, window)
        - drawdown(of(results, RANDOM, "pong", seed), BUDGET, window)
        for seed in range(4)
    ]
    assert found.drawdown_difference == pytest.approx(mean_interval(losses))
    assert comparison.drawdown_difference is not None
    both = [game.drawdown_difference for game in comparison.games if game.drawdown_difference]
    # A share is not divided by the deviation of scores.
    assert comparison.drawdown_difference.mean == pytest.approx((both[0].mean + both[1].mean) / 2)


def test_over_games_differences_are_in_the_baselines_deviations() -> None:
    results = two_games()
    (comparison,) = summarize(results).comparisons
    games = {}
    for found in comparison.games:
        rates = np.concatenate([reward_rates(curve) for curve in results.of(RANDOM, found.game)])
        games[found.game] = found.area_difference.mean / rates.std()
    assert comparison.area_difference is not None
    assert comparison.area_difference.mean == pytest.approx(np.mean(list(games.values())))
    assert comparison.area_difference.repeats == 8
    assert comparison.seeds == (4, 4)


def test_a_gain_is_a_share_where_no_return_is_negative_and_not_elsewhere() -> None:
    results = two_games()
    (comparison,) = summarize(results).comparisons
    breakout, pong = comparison.games
    ours, theirs = (
        np.mean([area(curve, BUDGET) for curve in results.of(name, "breakout")])
        for name in ("leap", RANDOM)
    )
    assert breakout.area_gain is not None
    assert breakout.area_gain.mean == pytest.approx(ours / theirs - 1)
    assert breakout.area_gain.low < breakout.area_gain.mean < breakout.area_gain.high
    assert pong.area_gain is None
    assert comparison.area_gain is None
    # As a game in which one can lose points, though few do.
    curves = [
        agent([10, BUDGET], [value, -1.0], initialization=name, seed=seed)
        for name, value in ((RANDOM, 5.0), ("leap", 6.0))
        for seed in range(2)
    ]
    (lossy,) = summarize(evaluation(curves)).comparisons
    assert lossy.area_gain is None
    alone = replace(
        results,
        games=("breakout",),
        curves=tuple(curve for curve in results.curves if curve.game == "breakout"),
    )
    (comparison,) = summarize(alone).comparisons
    assert comparison.area_gain == pytest.approx(breakout.area_gain)


def test_the_spread_is_compared_by_its_ratio() -> None:
    results = two_games()
    summary = summarize(results)
    (comparison,) = summary.comparisons
    points = grid(BUDGET)
    ratios = []
    for game in results.games:
        spreads = []
        for name in ("leap", RANDOM):
            curves = np.array([on_grid(curve, points, 30) for curve in results.of(name, game)])
            known = ~np.isnan(curves).any(axis=0)
            assert known.sum() > 190
            spreads.append(np.nanstd(curves, axis=0, ddof=1)[np.isfinite(curves).sum(0) > 1].mean())
        ratios.append(spreads[0] / spreads[1])
    assert [game.spread_ratio for game in comparison.games] == pytest.approx(ratios)
    assert comparison.spread_ratio is not None
    assert comparison.spread_ratio.mean == pytest.approx(math.sqrt(ratios[0] * ratios[1]))
    scores = {(each.initialization, each.game): each.spread for each in summary.scores}
    assert scores["leap", "pong"] / scores[RANDOM, "pong"] == pytest.approx(ratios[1])


def test_normalized_scores_and_their_interquartile_means() -> None:
    results = two_games()
    summary = summarize(results)
    human = normalized_scores(summary, "leap", "final", "human")
    finals = np.array([final_performance(curve, BUDGET) for curve in results.of("leap", "pong")])
    np.testing.assert_allclose(human["pong"], [(finals + 20.7) / 35.3])
    found = {(a.initialization, a.measure, a.yardstick): a for a in summary.aggregates}
    assert len(found) == 6
    middle = found["leap", "final", "human"]
    pooled = np.sort(np.concatenate(list(human.values()), axis=None))
    assert middle.interquartile_mean.value == pytest.approx(pooled[2:6].mean())
    low, high = middle.interquartile_mean[1:]
    assert low < middle.interquartile_mean.value < high
    assert middle.games == ("breakout", "pong")
    (comparison,) = summary.comparisons
    sides = [
        [np.array([area(c, BUDGET) for c in results.of(name, game)]) for game in results.games]
        for name in ("leap", RANDOM)
    ]
    assert comparison.improvement is not None
    assert comparison.improvement.value == pytest.approx(float(probability_of_improvement(*sides)))


def test_equal_evaluations_give_equal_summaries() -> None:
    once, twice, other = (summarize(two_games(), seed=seed) for seed in (1, 1, 2))
    assert once.aggregates == twice.aggregates
    assert once.comparisons == twice.comparisons
    assert once.aggregates != other.aggregates


def test_the_level_is_nine_tenths_of_the_baselines_way() -> None:
    def step(when: int, **named: object) -> LearningCurve:
        ends = list(range(1000, BUDGET + 1, 1000))
        returns = [5.0 if end <= when else 15.0 for end in ends]
        return agent(ends, returns, **named)  # type: ignore[arg-type]

    curves = [step(50_000, seed=0), step(60_000, seed=1)]
    curves += [step(20_000, initialization="leap", seed=seed) for seed in (0, 1)]
    summary = summarize(evaluation(curves), window=1)
    assert summary.settings["breakout"].level == 14.0
    reached = {each.initialization: each for each in summary.scores}
    assert reached[RANDOM].agent_steps_to_level == 61_000
    assert reached["leap"].agent_steps_to_level == 21_000
    assert reached["leap"].reached_level == 2


def test_a_baseline_that_learns_nothing_sets_no_level() -> None:
    curves = [flat(3.0, seed=seed) for seed in (0, 1)]
    curves += [flat(5.0 + seed, initialization="leap", seed=seed) for seed in (0, 1)]
    summary = summarize(evaluation(curves))
    assert math.isnan(summary.settings["breakout"].level)
    assert [each.reached_level for each in summary.scores] == [0, 0]
    # Equal returns: the unit is a raw point.
    (comparison,) = summary.comparisons
    assert comparison.area_difference is not None
    assert comparison.area_difference.mean == pytest.approx(2.5)
    assert comparison.games[0].spread_ratio is None
    assert any("all returns of random are 3" in note for note in notes_of(summary))


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
    (comparison,) = summary.comparisons
    assert comparison.seeds == (1, 4)
    assert comparison.games[0] == summarize(whole).comparisons[0].games[0]
    assert comparison.area_difference is not None
    assert comparison.area_difference.high == math.inf
    assert "nothing says how much of it is chance" in verdict_of(comparison)
    assert "with 1 to 4 seeds" in verdict_of(comparison)
    assert "13 of 16 agents are finished; all that is said is of these." in notes_of(summary)
    json_like = [found.interquartile_mean for found in summary.aggregates]
    assert any(math.isinf(estimate.low) for estimate in json_like)


def test_nothing_finished_is_no_error() -> None:
    empty = evaluation([], initializations=[RANDOM, "leap"], games=["pong"], seeds=2)
    summary = summarize(empty)
    assert (summary.scores, summary.aggregates) == ((), ())
    (comparison,) = summary.comparisons
    assert verdict_of(comparison) == (
        "leap against random: no pair of agents is finished, so nothing can be said."
    )
    assert "nothing can be said" in " ".join(notes_of(summary))


def endless(rate: float, **named: object) -> LearningCurve:
    """An agent that earns so much per 1,000 agent steps in an episode that never ends."""
    return replace(agent([], [], **named), rewards=np.full(100, rate))  # type: ignore[arg-type]


def test_an_agent_whose_episode_never_ends_stays_in() -> None:
    curves = [flat(float(seed), seed=seed) for seed in range(3)]
    curves += [flat(seed + 1.0, initialization="leap", seed=seed) for seed in range(2)]
    curves += [endless(9.0, initialization="leap", seed=2)]
    summary = summarize(evaluation(curves))
    (comparison,) = summary.comparisons
    assert comparison.seeds == (3, 3)
    (game,) = comparison.games
    assert game.area_difference.mean == pytest.approx((1 + 1 + 7) / 3)
    assert game.final_difference is not None
    assert (game.final_difference.mean, game.final_difference.repeats) == (1.0, 2)
    assert "breakout: 1 agent has finished no episode, and so an area but no final return." in (
        notes_of(summary)
    )
    silent = [endless(1.0 + seed, seed=seed) for seed in range(2)]
    silent += [endless(3.0 + seed, initialization="leap", seed=seed) for seed in range(2)]
    (comparison,) = summarize(evaluation(silent)).comparisons
    assert comparison.final_difference is None
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
    assert "not against a random one" in " ".join(notes_of(summary))
    other = summarize(evaluation(curves), reference="leap")
    assert other.comparisons[0].area_difference is not None
    assert other.comparisons[0].area_difference.mean < 0
    alone = summarize(evaluation(curves[:2]))
    assert alone.comparisons == ()
    assert "only initialization" in " ".join(notes_of(alone))
    assert alone.scores[0].area.mean == 0.5


@pytest.mark.parametrize("game", ["catch", "air_raid"])
def test_a_game_without_human_scores_has_the_baselines_scale_alone(game: str) -> None:
    curves = [learner(name, game, seed) for name in (RANDOM, "leap") for seed in range(3)]
    summary = summarize(evaluation(curves))
    assert {found.yardstick for found in summary.aggregates} == {"baseline"}
    assert all(scores.human_final is None for scores in summary.scores)
    assert f"none is human-normalised: {game}." in " ".join(notes_of(summary))


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
    (comparison,) = summarize(evaluation(curves)).comparisons
    assert conclusion_of(comparison) == "better"
    assert "area under the curve +" in verdict_of(comparison)
    assert "deviations of random's reward rates (95 % interval +" in verdict_of(comparison)
    swapped = summarize(evaluation(curves), reference="leap").comparisons[0]
    assert conclusion_of(swapped) == "worse"


def test_many_intervals_leave_out_0_by_chance_and_the_notes_say_so() -> None:
    games = ["breakout", "assault", "qbert", "seaquest", "asterix"]
    curves = [
        flat(10.0 + seed, initialization=name, game=game, seed=seed)
        for name in (RANDOM, "leap", "other")
        for game in games
        for seed in range(2)
    ]
    assert "Of 10 intervals of single games some 0.5" in " ".join(
        notes_of(summarize(evaluation(curves)))
    )


BROKEN = [
    ([agent([100, 90], [1.0, 2.0])], "seed 0: has returns that are not finite, or agent steps"),
    ([agent([100], [math.nan])], "random, breakout, seed 0: has returns that are not finite"),
    (
        [agent([200_000], [1.0])],
        "agent step 200,000, past the budget of 100,000; curves of",
    ),
    ([agent([1], [1.0]), agent([2], [1.0])], "random, breakout, seed 0: comes twice"),
    ([agent([1], [1.0], game="qbert")], "has no game 'qbert', but breakout"),
    ([agent([1], [1.0], initialization="x")], "has no initialization 'x', but random, leap"),
    ([agent([1], [1.0], seed=2)], "seed 2: the evaluation has 2 seeds, from 0"),
    ([replace(agent([1], [1.0]), lengths=np.array([1, 2]))], "its columns differ in length"),
    ([agent([1], [1.0]), agent([1], [1.0], seed=1, budget=99)], "are of other intervals than the"),
    ([replace(agent([1], [1.0]), rewards=np.full(100, np.inf))], "its rewards are not finite"),
    ([agent([1], [1.0], run=1)], "random (run 1), breakout, seed 0: random has 1 runs, from 0"),
]


@pytest.mark.parametrize(("curves", "message"), BROKEN)
def test_what_does_not_belong_together_is_refused(
    curves: list[LearningCurve], message: str
) -> None:
    results = evaluation(curves, initializations=[RANDOM, "leap"], games=["breakout"], seeds=2)
    results = replace(results, runs={RANDOM: [RANDOM], "leap": ["leap"]})
    with pytest.raises(ValueError, match=f"{re.escape(message)}[^\n]*$"):
        summarize(results)


def test_bad_questions_are_refused() -> None:
    with pytest.raises(ValueError, match="reference = 'x': is none of random, leap"):
        summarize(two_games(), reference="x")
    with pytest.raises(ValueError, match="margin = -1"):
        summarize(two_games(), margin=-1)
    with pytest.raises(ValueError, match="window = 0"):
        summarize(two_games(), window=0)
    with pytest.raises(ValueError, match="nothing to measure"):
        summarize(evaluation([]))
