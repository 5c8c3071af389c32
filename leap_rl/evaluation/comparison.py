"""Sets each initialization against the baseline, game by game and over all.

Every difference is one of pairs: agents of the same game and seed, which share everything but the
encoder's start. Over games each game counts the same. docs/evaluation.md defines the measures.

Dimensions: G games, n pairs of a game, T points of a grid.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import product
from typing import Literal

import numpy as np

from leap_rl.evaluation.measures import (
    AgentMeasures,
    final_performance,
    first_performance,
    grid,
    measure,
    on_grid,
    spread_over_seeds,
    window_of,
)
from leap_rl.evaluation.normalization import human_scale, reference_scale
from leap_rl.evaluation.results import Evaluation
from leap_rl.evaluation.statistics import (
    Estimate,
    FloatArray,
    Mean,
    bootstrap_interval,
    improvement_interval,
    interquartile_mean,
    mean_interval,
    paired_difference,
    relative_gains,
    stratified_mean_interval,
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
from leap_rl.evaluation.validation import check_evaluation
from leap_rl.seeding import Purpose, derive_seed

LEVEL = 0.9
"""The level to be reached is this part of the way from the baseline's first to its final one."""

PairedMeasure = Literal["area", "final", "drawdown"]


def summarize(
    evaluation: Evaluation,
    *,
    reference: str | None = None,
    window: int | None = None,
    seed: int = 0,
) -> Summary:
    """Return what an evaluation comes to, as far as its agents are finished.

    Args:
        evaluation: Complete or not.
        reference: What to set the others against; the evaluation's first unless named.
        window: Episodes of the moving mean; by game, :func:`window_of`, unless given.
        seed: Of the bootstrap.

    Raises:
        ValueError: The curves are not of one evaluation, or `reference` or `window` is no good.
    """
    check_evaluation(evaluation, reference=reference, window=window)
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
            if len(curve.returns)
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
    others = [name for name in evaluation.initializations if name != reference]
    return replace(
        summary,
        aggregates=tuple(_aggregates(summary, seed)),
        comparisons=tuple(_compare(_Pairs(summary, name), seed) for name in others),
    )


def normalized_scores(
    summary: Summary, initialization: str, measure: Measure, yardstick: Yardstick
) -> dict[str, FloatArray]:
    """Return normalised scores by game, [n] each.

    Games without agents are missing, and with `human` those that have no such score.
    """
    found = {}
    for game, setting in summary.settings.items():
        scale = setting.scale if yardstick == "baseline" else setting.human
        raw = [getattr(agent, measure) for agent in summary.agents[initialization, game]]
        if scale is not None and raw:
            found[game] = scale(np.array(raw))
    return found


def _setting(evaluation: Evaluation, game: str, reference: str, window: int | None) -> GameSetting:
    curves = [curve for curve in evaluation.curves if curve.game == game]
    baseline = [curve for curve in evaluation.of(reference, game) if len(curve.returns)]
    level, budget = math.nan, evaluation.agent_steps
    if baseline:
        first = float(np.mean([first_performance(curve, budget) for curve in baseline]))
        final = float(np.mean([final_performance(curve, budget) for curve in baseline]))
        level = first + LEVEL * (final - first) if final > first else math.nan
    return GameSetting(
        game=game,
        window=window or window_of(curves),
        scale=reference_scale(baseline),
        human=human_scale(game),
        level=level,
    )


def _scores(
    evaluation: Evaluation, agents: Sequence[AgentMeasures], setting: GameSetting
) -> GameScores:
    name, game = agents[0].initialization, agents[0].game
    final = np.array([agent.final for agent in agents])
    steady = [agent.drawdown for agent in agents if math.isfinite(agent.drawdown)]
    reached = [agent.agent_steps_to_level for agent in agents]
    unit = math.nan if setting.scale is None else setting.scale.unit
    seeds = [agent.seed for agent in agents]
    return GameScores(
        initialization=name,
        game=game,
        agents=len(agents),
        area=mean_interval([agent.area for agent in agents]),
        final=mean_interval(final),
        human_final=None if setting.human is None else float(np.mean(setting.human(final))),
        drawdown=mean_interval(steady) if steady else None,
        spread=_spread(evaluation, name, setting, seeds) / unit,
        agent_steps_to_level=_median(reached),
        reached_level=sum(math.isfinite(each) for each in reached),
    )


def _spread(evaluation: Evaluation, name: str, setting: GameSetting, seeds: Sequence[int]) -> float:
    """The spread over these seeds, in raw returns."""
    points = grid(evaluation.agent_steps)
    curves = [curve for curve in evaluation.of(name, setting.game) if curve.seed in seeds]
    return spread_over_seeds([on_grid(curve, points, setting.window) for curve in curves])


def _median(values: Sequence[float]) -> float:
    """The median; of an even number the larger middle one, as infinities have no mean."""
    return sorted(values)[len(values) // 2]


def _aggregates(summary: Summary, seed: int) -> list[Aggregate]:
    measures: tuple[Measure, ...] = ("area", "final")
    yardsticks: tuple[Yardstick, ...] = ("baseline", "human")
    found = []
    for name in summary.evaluation.initializations:
        for which, yardstick in product(measures, yardsticks):
            by_game = normalized_scores(summary, name, which, yardstick)
            if not by_game:
                continue
            interval = bootstrap_interval(
                list(by_game.values()),
                interquartile_mean,
                seed=derive_seed(seed, Purpose.BOOTSTRAP, name, which, yardstick),
            )
            found.append(
                Aggregate(
                    initialization=name,
                    measure=which,
                    yardstick=yardstick,
                    games=tuple(by_game),
                    interquartile_mean=interval,
                )
            )
    return found


@dataclass(frozen=True, slots=True)
class _Pairs:
    """An initialization's agents and the reference's, side by side."""

    summary: Summary
    name: str

    def games(self) -> list[str]:
        return [game for game in self.summary.settings if self.seeds(game)]

    def seeds(self, game: str, of: PairedMeasure = "area") -> list[int]:
        """Those for which both have a value."""
        ours, theirs = (self._by_seed(name, game, of) for name in self._both())
        return sorted(ours.keys() & theirs.keys())

    def values(self, game: str, of: PairedMeasure) -> tuple[FloatArray, FloatArray]:
        """A measure's values, ours and theirs, [n] each."""
        ours, theirs = (self._by_seed(name, game, of) for name in self._both())
        seeds = self.seeds(game, of)
        return np.array([ours[seed] for seed in seeds]), np.array([theirs[seed] for seed in seeds])

    def difference(self, game: str, of: PairedMeasure) -> Mean | None:
        """Scores in raw returns; None without a pair."""
        ours, theirs = self.values(game, of)
        return paired_difference(ours, theirs) if len(ours) else None

    def difference_over_games(self, of: PairedMeasure) -> Mean | None:
        """Scores in deviations of the reference's episodes; None without a pair."""
        strata = []
        for game, setting in self.summary.settings.items():
            ours, theirs = self.values(game, of)
            if len(ours) and setting.scale is not None:
                unit = 1.0 if of == "drawdown" else setting.scale.unit
                strata.append((ours - theirs) / unit)
        return stratified_mean_interval(strata) if strata else None

    def gains(self, game: str) -> FloatArray | None:
        """Values whose mean is the area's gain, [n]; None where 0 is no natural beginning."""
        evaluation = self.summary.evaluation
        curves = [curve for name in self._both() for curve in evaluation.of(name, game)]
        if any(curve.returns.min(initial=0.0) < 0 for curve in curves):
            return None
        ours, theirs = self.values(game, "area")
        return relative_gains(ours, theirs) if theirs.mean() > 0 else None

    def spread_ratio(self, game: str) -> float | None:
        seeds = self.seeds(game)
        ours, theirs = (
            _spread(self.summary.evaluation, name, self.summary.settings[game], seeds)
            for name in self._both()
        )
        return ours / theirs if ours > 0 and theirs > 0 else None

    def improvement(self, games: Sequence[str], seed: int) -> Estimate:
        ours, theirs = (
            [np.array([agent.area for agent in self.summary.agents[name, game]]) for game in games]
            for name in self._both()
        )
        path = (self.name, self.summary.reference, *games)
        return improvement_interval(ours, theirs, seed=derive_seed(seed, Purpose.BOOTSTRAP, *path))

    def _both(self) -> tuple[str, str]:
        return self.name, self.summary.reference

    def _by_seed(self, name: str, game: str, of: PairedMeasure) -> dict[int, float]:
        found = {agent.seed: getattr(agent, of) for agent in self.summary.agents[name, game]}
        return {seed: value for seed, value in found.items() if math.isfinite(value)}


def _compare(pairs: _Pairs, seed: int) -> Comparison:
    names = pairs.games()
    games = tuple(_compare_in(pairs, game, seed) for game in names)
    gains = [gain for game in names if (gain := pairs.gains(game)) is not None]
    ratios = [game.spread_ratio for game in games if game.spread_ratio is not None]
    return Comparison(
        initialization=pairs.name,
        reference=pairs.summary.reference,
        games=games,
        area_gain=stratified_mean_interval(gains) if gains and len(gains) == len(games) else None,
        area_difference=pairs.difference_over_games("area"),
        final_difference=pairs.difference_over_games("final"),
        drawdown_difference=pairs.difference_over_games("drawdown"),
        spread_ratio=_geometric_mean(ratios) if ratios else None,
        improvement=pairs.improvement(names, seed) if names else None,
    )


def _compare_in(pairs: _Pairs, game: str, seed: int) -> GameComparison:
    gains = pairs.gains(game)
    area, final = pairs.difference(game, "area"), pairs.difference(game, "final")
    assert area is not None, "a game that is compared has a pair"
    assert final is not None, "an agent with an area has a final performance"
    return GameComparison(
        game=game,
        pairs=area.repeats,
        area_difference=area,
        area_gain=None if gains is None else mean_interval(gains),
        final_difference=final,
        drawdown_difference=pairs.difference(game, "drawdown"),
        spread_ratio=pairs.spread_ratio(game),
        improvement=pairs.improvement([game], seed),
    )


def _geometric_mean(ratios: Sequence[float]) -> Mean:
    logs = mean_interval([math.log(ratio) for ratio in ratios])
    mean, low, high = (math.exp(each) for each in logs[:3])
    return Mean(mean, low, high, logs.repeats)
