"""Compares each initialization with the baseline, game by game and over all.

Every difference is one of pairs: agents of the same game and seed, which share everything but the
encoder's start. A seed of a game counts where every run of both groups has an agent of it that is
finished, was not restarted with another seed, and has a value. Over games each game counts the
same. docs/evaluation.md defines the measures.

Dimensions: K runs of an initialization, n agents of each run in a game.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from leap_rl.core.seeding import Purpose, derive_seed
from leap_rl.evaluation.measures import (
    final_performance,
    first_performance,
    measure,
    reward_rates,
    window_of,
)
from leap_rl.evaluation.normalization import RAW, human_scale, reference_scale
from leap_rl.evaluation.results import EvaluationResults, LearningCurve, read_evaluation
from leap_rl.evaluation.statistics import (
    FloatArray,
    IntervalEstimate,
    bootstrap,
    interquartile_mean,
    probability_of_improvement,
    relative_gains,
    runs_by_agents_interval,
)
from leap_rl.evaluation.summary import (
    Aggregate,
    Comparison,
    Differences,
    GameSetting,
    Measure,
    Summary,
    Yardstick,
    complete_pairs,
)
from leap_rl.evaluation.verdict import notes_of, verdict_of
from leap_rl.storage.run_folder import RunFolder
from leap_rl.training.rounds.evaluation_slots import RANDOM

LEVEL = 0.9
"""The level to be reached is this part of the way from the baseline's first to its final one."""

NON_INFERIORITY = 0.1
"""The final performance is not inferior if it is less than this share of what the reference gained,
from its first to its final performance, below the reference's: the same tenth that `LEVEL`
leaves."""


def read_summary(folder: RunFolder) -> Summary:
    """Return the summary of the evaluation in a folder; errors as in `read_evaluation`."""
    return summarize(read_evaluation(folder))


def summarize(evaluation: EvaluationResults) -> Summary:
    """Return the summary of an evaluation's finished agents."""
    settings = {game: _setting(evaluation, game) for game in evaluation.games}
    agents = {
        (name, game): [
            measure(
                curve, budget=evaluation.agent_steps, window=setting.window, level=setting.level
            )
            for curve in evaluation.of(name, game)
        ]
        for name in evaluation.initializations
        for game, setting in settings.items()
    }
    summary = Summary(evaluation=evaluation, settings=settings, agents=agents, aggregates={})
    summary = replace(summary, aggregates=dict(_aggregates(summary)))
    comparisons = tuple(_compare(_Pairs(summary, *both)) for both in _compared(summary))
    summary = replace(summary, comparisons=comparisons)
    return replace(summary, verdict=(*map(verdict_of, comparisons), *notes_of(summary)))


def normalized_scores(
    summary: Summary, initialization: str, measure: Measure, yardstick: Yardstick
) -> dict[str, FloatArray]:
    """Return normalised scores by game, [K, n] of K runs each.

    Games without agents are missing, and with `human` those that have no such score.
    """
    found = {}
    for game, setting in summary.settings.items():
        scale = setting.scale_of(measure) if yardstick == "baseline" else setting.human
        (scores,) = complete_pairs(summary.values(initialization, game, measure))
        if scale is not None and scores.size:
            found[game] = scale(scores)
    return found


def _setting(evaluation: EvaluationResults, game: str) -> GameSetting:
    baseline = evaluation.of(evaluation.initializations[0], game)
    first, final = _first_and_final(baseline, evaluation.agent_steps)
    return GameSetting(
        window=window_of(curve for curve in evaluation.curves if curve.game == game),
        scale=reference_scale([curve.returns for curve in baseline]),
        reward_scale=reference_scale([reward_rates(curve) for curve in baseline]),
        human=human_scale(game),
        level=first + LEVEL * (final - first) if final > first else math.nan,
    )


def _first_and_final(curves: Sequence[LearningCurve], budget: int) -> tuple[float, float]:
    """Agents' mean first and final performance, raw returns; NaN without episodes."""

    def mean(performance: Callable[[LearningCurve, int], float]) -> float:
        values = [performance(curve, budget) for curve in curves if len(curve.returns)]
        return float(np.mean(values)) if values else math.nan

    return mean(first_performance), mean(final_performance)


def _aggregates(
    summary: Summary,
) -> Iterable[tuple[tuple[str, Measure, Yardstick], Aggregate]]:
    # A human's score is a return, and nobody knows a human's reward per agent step.
    kinds: list[tuple[Measure, Yardstick]]
    kinds = [("area", "baseline"), ("final", "baseline"), ("final", "human")]
    for name in summary.evaluation.initializations:
        for kind in kinds:
            by_game = normalized_scores(summary, name, *kind)
            if by_game:
                seed = derive_seed(0, Purpose.BOOTSTRAP, name, *kind)
                middle = bootstrap(interquartile_mean, list(by_game.values()), seed=seed)
                yield (
                    (name, *kind),
                    Aggregate(tuple(by_game), IntervalEstimate(*map(float, middle))),
                )


def _compared(summary: Summary) -> list[tuple[str, str]]:
    """What is set against what: all against the reference, runs against their own starts."""
    own_starts = summary.evaluation.own_starts
    found = []
    for name in summary.evaluation.initializations:
        if name not in (summary.reference, *own_starts.values()):
            found.append((name, summary.reference))
        if own_starts.get(name, summary.reference) != summary.reference:
            found.append((name, own_starts[name]))
    return found


def _compare(pairs: _Pairs) -> Comparison:
    summary = pairs.summary
    runs = summary.evaluation.runs
    starts_at_random = pairs.reference in (RANDOM, *summary.evaluation.own_starts.values())
    counts = pairs.counts()
    ours, theirs = (
        summary.aggregates.get((name, "area", "baseline")) for name in (pairs.name, pairs.reference)
    )
    return Comparison(
        initialization=pairs.name,
        reference=pairs.reference,
        runs=len(runs[pairs.name]),
        reference_runs=None if starts_at_random else len(runs[pairs.reference]),
        normalized_by=summary.reference,
        pairs=counts,
        games={game: pairs.differences([game], scaled=False) for game in counts},
        over_games=pairs.differences(list(counts), scaled=True) if counts else None,
        final_margin=pairs.margin(),
        middle=ours and ours.interquartile_mean,
        reference_middle=theirs and theirs.interquartile_mean,
    )


@dataclass(frozen=True, slots=True)
class _Pairs:
    summary: Summary
    name: str
    reference: str

    def values(self, game: str, of: Measure) -> list[FloatArray]:
        """Return a measure's values, ours and theirs, [K, n] each."""
        return complete_pairs(
            *(self.summary.values(name, game, of) for name in (self.name, self.reference))
        )

    def counts(self) -> Mapping[str, int]:
        counts = {game: self.values(game, "area")[0].shape[1] for game in self.summary.settings}
        return {game: count for game, count in counts.items() if count}

    def differences(self, games: Sequence[str], *, scaled: bool) -> Differences:
        """Return ours less theirs over games, raw or in the reference's deviations."""
        sides = zip(*(self.values(game, "area") for game in games), strict=True)
        seed = derive_seed(0, Purpose.BOOTSTRAP, self.name, self.reference, *games)
        improvement = bootstrap(probability_of_improvement, *sides, seed=seed, bounds=(0.0, 1.0))
        return Differences(
            area=self.difference(games, "area", scaled=scaled),
            gain=self.gain(games),
            final=self.difference(games, "final", scaled=scaled),
            drawdown=self.difference(games, "drawdown", scaled=scaled),
            improvement=IntervalEstimate(*map(float, improvement)),
        )

    def difference(
        self, games: Sequence[str], of: Measure, *, scaled: bool
    ) -> IntervalEstimate | None:
        strata = []
        for game in games:
            ours, theirs = self.values(game, of)
            scale = self.summary.settings[game].scale_of(of) if scaled else RAW
            if ours.size and scale is not None:
                strata.append((ours / scale.unit, theirs / scale.unit))
        return self.mean(strata) if strata else None

    def gain(self, games: Sequence[str]) -> IntervalEstimate | None:
        strata = []
        for game in games:
            ours, theirs = self.values(game, "area")
            if self.can_lose(game) or theirs.mean() <= 0:
                return None
            strata.append(relative_gains(ours, theirs))
        return self.mean(strata)

    def can_lose(self, game: str) -> bool:
        """Whether anything is negative, so that 0 is no natural beginning."""
        return any(
            min(curve.returns.min(initial=0.0), curve.rewards.min(initial=0.0)) < 0
            for name in (self.name, self.reference)
            for curve in self.summary.evaluation.of(name, game)
        )

    def margin(self) -> float:
        """Return a share of the reference's gain (0 where it lost), in deviations, over games."""
        gains = []
        evaluation = self.summary.evaluation
        for game, setting in self.summary.settings.items():
            if self.values(game, "final")[0].size and setting.scale is not None:
                curves = evaluation.of(self.reference, game)
                first, final = _first_and_final(curves, evaluation.agent_steps)
                gains.append(max(final - first, 0.0) / setting.scale.unit)
        return NON_INFERIORITY * float(np.mean(gains)) if gains else 0.0

    def mean(self, strata: Sequence[Sequence[FloatArray]]) -> IntervalEstimate:
        evaluation = self.summary.evaluation
        own = evaluation.own_starts.get(self.name) == self.reference
        if own or 1 in (len(evaluation.runs[name]) for name in (self.name, self.reference)):
            # Each run of ours has one agent of theirs a seed: their only one, or its own.
            return runs_by_agents_interval([ours - theirs for ours, theirs in strata])
        ours, theirs = zip(*strata, strict=True)
        return runs_by_agents_interval(ours, [-values for values in theirs])
