"""Sets each initialization against the baseline, game by game and over all.

Every difference is one of pairs (`pairs.py`): agents of the same game and seed, which share
everything but the encoder's start. Over games each game counts the same. docs/evaluation.md defines
the measures.

Dimensions: G games, K runs of an initialization, n seeds of a game.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import replace

import numpy as np

from leap_rl.evaluation.measures import AgentMeasures, measure, reward_rates, window_of
from leap_rl.evaluation.normalization import human_scale, reference_scale
from leap_rl.evaluation.pairs import (
    PairedMeasure,
    Pairs,
    by_run,
    gain_of_agents,
    spread,
    whole_seeds,
)
from leap_rl.evaluation.results import Evaluation
from leap_rl.evaluation.statistics import (
    Estimate,
    FloatArray,
    Mean,
    bootstrap_interval,
    interquartile_mean,
    mean_interval,
)
from leap_rl.evaluation.summary import (
    Aggregate,
    Comparison,
    GameComparison,
    GameScores,
    GameSetting,
    Measure,
    Summary,
    Yardstick,
)
from leap_rl.evaluation.two_level import two_level_mean
from leap_rl.evaluation.validation import check_evaluation
from leap_rl.seeding import Purpose, derive_seed
from leap_rl.training.rounds.agents import RANDOM

LEVEL = 0.9
"""The level to be reached is this part of the way from the baseline's first to its final one."""

NON_INFERIORITY = 0.1
"""The final performance is not inferior if it is less than this share of what the reference gained,
from its first to its final performance, below the reference's: the same tenth that :data:`LEVEL`
leaves."""


def summarize(
    evaluation: Evaluation,
    *,
    reference: str | None = None,
    window: int | None = None,
    margin: float = NON_INFERIORITY,
    seed: int = 0,
) -> Summary:
    """Return what an evaluation comes to, as far as its agents are finished.

    Args:
        evaluation: Complete or not.
        reference: What to set the others against; the evaluation's first unless named.
        window: Episodes of the moving mean; by game, :func:`window_of`, unless given.
        margin: Of non-inferiority; a share of what the reference gained.
        seed: Of the bootstrap.

    Raises:
        ValueError: The curves are not of one evaluation, or an argument is no good.
    """
    check_evaluation(evaluation, reference=reference, window=window)
    if not margin >= 0:
        raise ValueError(f"margin = {margin}: must be at least 0")
    reference = reference or evaluation.initializations[0]
    settings = {game: _setting(evaluation, game, reference, window) for game in evaluation.games}
    agents = {
        (name, game): [
            measure(
                curve,
                budget=evaluation.agent_steps,
                window=setting.window,
                level=setting.level,
            )
            for curve in evaluation.of(name, game)
        ]
        for name in evaluation.initializations
        for game, setting in settings.items()
    }
    summary = Summary(
        evaluation=evaluation,
        reference=reference,
        settings=settings,
        agents=agents,
        scores=tuple(
            _scores(evaluation, agents[name, game], settings[game])
            for name, game in agents
            if agents[name, game]
        ),
    )
    summary = replace(summary, aggregates=tuple(_aggregates(summary, seed)))
    pairs = [Pairs(summary, *both) for both in _compared(summary)]
    return replace(summary, comparisons=tuple(_compare(each, margin, seed) for each in pairs))


def normalized_scores(
    summary: Summary, initialization: str, measure: Measure, yardstick: Yardstick
) -> dict[str, FloatArray]:
    """Return normalised scores by game, [K, n] of K runs each.

    Games without agents are missing, and with `human` those that have no such score.
    """
    found = {}
    runs = len(summary.evaluation.runs[initialization])
    for game, setting in summary.settings.items():
        scale = setting.scale_of(measure) if yardstick == "baseline" else setting.human
        agents = summary.agents[initialization, game]
        seeds = whole_seeds(agents, runs, measure)
        if scale is not None and seeds:
            found[game] = scale(by_run(agents, runs, seeds, measure))
    return found


def _setting(evaluation: Evaluation, game: str, reference: str, window: int | None) -> GameSetting:
    curves = [curve for curve in evaluation.curves if curve.game == game]
    baseline = evaluation.of(reference, game)
    first, final = gain_of_agents(evaluation, reference, game)
    return GameSetting(
        game=game,
        window=window or window_of(curves),
        scale=reference_scale([curve.returns for curve in baseline]),
        reward_scale=reference_scale([reward_rates(curve) for curve in baseline]),
        human=human_scale(game),
        level=first + LEVEL * (final - first) if final > first else math.nan,
    )


def _scores(
    evaluation: Evaluation, agents: Sequence[AgentMeasures], setting: GameSetting
) -> GameScores:
    name, game = agents[0].initialization, agents[0].game
    runs = len(evaluation.runs[name])
    area, final = (_mean_of(agents, runs, of) for of in ("area", "final"))
    assert area is not None, "a finished agent has an area"
    human = None if setting.human is None or final is None else setting.human(np.array(final.mean))
    reached = [agent.agent_steps_to_level for agent in agents]
    unit = math.nan if setting.scale is None else setting.scale.unit
    seeds = [agent.seed for agent in agents]
    return GameScores(
        initialization=name,
        game=game,
        agents=len(agents),
        area=area,
        final=final,
        human_final=None if human is None else float(human),
        drawdown=_mean_of(agents, runs, "drawdown"),
        spread=spread(evaluation, name, setting, seeds) / unit,
        agent_steps_to_level=_median(reached),
        reached_level=sum(math.isfinite(each) for each in reached),
    )


def _mean_of(agents: Sequence[AgentMeasures], runs: int, of: PairedMeasure) -> Mean | None:
    """A measure's mean; if no seed is whole, over all agents that have it, without an interval."""
    seeds = whole_seeds(agents, runs, of)
    if seeds:
        return two_level_mean([[by_run(agents, runs, seeds, of)]])
    values = [value for agent in agents if math.isfinite(value := getattr(agent, of))]
    return Mean(float(np.mean(values)), -math.inf, math.inf, len(values)) if values else None


def _median(values: Sequence[float]) -> float:
    """The median; of an even number the larger middle one, as infinities have no mean."""
    return sorted(values)[len(values) // 2]


def _aggregates(summary: Summary, seed: int) -> Iterable[Aggregate]:
    # A human's score is a return, and nobody knows a human's reward per agent step.
    kinds: list[tuple[Measure, Yardstick]]
    kinds = [("area", "baseline"), ("final", "baseline"), ("final", "human")]
    for name in summary.evaluation.initializations:
        for which, yardstick in kinds:
            by_game = normalized_scores(summary, name, which, yardstick)
            if by_game:
                path = derive_seed(seed, Purpose.BOOTSTRAP, name, which, yardstick)
                yield Aggregate(
                    initialization=name,
                    measure=which,
                    yardstick=yardstick,
                    games=tuple(by_game),
                    interquartile_mean=bootstrap_interval(
                        list(by_game.values()), interquartile_mean, seed=path
                    ),
                )


def _compared(summary: Summary) -> list[tuple[str, str]]:
    """Return what is set against what: all against the reference, runs against their own starts."""
    own_starts = summary.evaluation.own_starts
    found = []
    for name in summary.evaluation.initializations:
        if name not in (summary.reference, *own_starts.values()):
            found.append((name, summary.reference))
        if own_starts.get(name, summary.reference) != summary.reference:
            found.append((name, own_starts[name]))
    return found


def _compare(pairs: Pairs, margin: float, seed: int) -> Comparison:
    summary, names = pairs.summary, pairs.games()
    runs = summary.evaluation.runs
    starts_at_random = pairs.reference in (RANDOM, *summary.evaluation.own_starts.values())
    games = tuple(_compare_in(pairs, game, seed) for game in names)
    ratios = [game.spread_ratio for game in games if game.spread_ratio is not None]
    middle, reference_middle = (_middle(summary, name) for name in (pairs.name, pairs.reference))
    return Comparison(
        initialization=pairs.name,
        reference=pairs.reference,
        runs=len(runs[pairs.name]),
        reference_runs=None if starts_at_random else len(runs[pairs.reference]),
        normalized_by=summary.reference,
        games=games,
        area_gain=pairs.gain(names),
        area_difference=pairs.difference_over_games("area"),
        final_difference=pairs.difference_over_games("final"),
        final_margin=pairs.margin(margin),
        drawdown_difference=pairs.difference_over_games("drawdown"),
        spread_ratio=_geometric_mean(ratios) if ratios else None,
        improvement=pairs.improvement(names, seed) if names else None,
        middle=middle,
        reference_middle=reference_middle,
    )


def _middle(summary: Summary, name: str) -> Estimate | None:
    return next(
        (
            one.interquartile_mean
            for one in summary.aggregates
            if (one.initialization, one.measure, one.yardstick) == (name, "area", "baseline")
        ),
        None,
    )


def _compare_in(pairs: Pairs, game: str, seed: int) -> GameComparison:
    area = pairs.difference(game, "area")
    assert area is not None, "a game that is compared has a pair"
    return GameComparison(
        game=game,
        seeds=len(pairs.seeds(game)),
        area_difference=area,
        area_gain=pairs.gain([game]),
        final_difference=pairs.difference(game, "final"),
        drawdown_difference=pairs.difference(game, "drawdown"),
        spread_ratio=pairs.spread_ratio(game),
        improvement=pairs.improvement([game], seed),
    )


def _geometric_mean(ratios: Sequence[float]) -> Mean:
    logs = mean_interval([math.log(ratio) for ratio in ratios])
    mean, low, high = (math.exp(each) for each in logs[:3])
    return Mean(mean, low, high, logs.repeats)
