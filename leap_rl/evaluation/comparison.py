"""Compares each initialization with agents from random starts, game by game and over all.

docs/evaluation.md defines the measures. Agents that diverged and were restarted with another seed
take no part, nor do those that finished no episode: they have no curve.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

import numpy as np

from leap_rl.core.seeding import Purpose, derive_seed
from leap_rl.evaluation.measures import Agents, Means, measure
from leap_rl.evaluation.normalization import human_scale
from leap_rl.evaluation.over_games import contrasts_of, mean_saved, ranking_of
from leap_rl.evaluation.results import EvaluationResults, LearningCurve, read_evaluation
from leap_rl.evaluation.savings import (
    Reference,
    make_reference,
    most_that_can_be_saved,
    sample,
    speed_up,
)
from leap_rl.evaluation.statistics import (
    FloatArray,
    IntervalEstimate,
    Sampled,
    bootstrap,
    interquartile_mean,
    probability_of_improvement,
    sampled_interval,
)
from leap_rl.evaluation.summary import Comparison, Effect, Game, Scope, Summary
from leap_rl.evaluation.verdict import best_of, notes_of, verdict_of
from leap_rl.storage.run_folder import RunFolder
from leap_rl.training.rounds.evaluation_slots import RANDOM

SHARES = (0.5, 0.9)
"""Of the reference's gain, that speed-ups are to."""
RESAMPLES = 2_000


def read_summary(folder: RunFolder) -> Summary:
    """Return the summary of the evaluation in a folder; errors as in `read_evaluation`."""
    return summarize(read_evaluation(folder))


def summarize(evaluation: EvaluationResults) -> Summary:
    """Return the summary of an evaluation's finished agents."""
    baseline = [*(name for name in evaluation.initializations if name == RANDOM)]
    baseline += dict.fromkeys(evaluation.own_starts.values())  # which are random too
    reference = RANDOM if baseline else evaluation.initializations[0]
    baseline = baseline or [reference]
    games = {
        name: game
        for name in evaluation.games
        if (game := _game(evaluation, name, baseline, reference)) is not None
    }
    samples = {
        name: {game: _saved(found, name) for game, found in games.items() if name in found.runs}
        for name in evaluation.initializations
        if name not in baseline
    }
    comparisons = tuple(
        _compare(evaluation, reference, games, name, of_games) for name, of_games in samples.items()
    )
    summary = Summary(
        evaluation=evaluation,
        reference=reference,
        games=games,
        comparisons=comparisons,
        contrasts=tuple(contrasts_of(samples)),
        ranking=ranking_of(comparisons, samples),
        middles=dict(_middles(games, [reference, *samples])),
    )
    first = best_of(summary)
    answer = [first] if first else []
    answer += map(verdict_of, summary.comparisons)
    return replace(summary, verdict=(*answer, *notes_of(summary)))


def _game(
    evaluation: EvaluationResults, name: str, baseline: Sequence[str], reference: str
) -> Game | None:
    """Return what agents did in a game; none without agents of the baseline."""
    budget = evaluation.agent_steps
    curves: dict[str, dict[int, list[LearningCurve]]] = {}
    for each in evaluation.initializations:
        for curve in evaluation.of(each, name):
            if len(curve.returns) and not curve.restarted:
                curves.setdefault(each, {}).setdefault(curve.run, []).append(curve)
    found = [curve for each in baseline for of in curves.pop(each, {}).values() for curve in of]
    if not found:
        return None
    made = make_reference(found, budget)
    return Game(
        reference=made,
        runs={reference: [made.agents]}
        | {
            each: [measure(runs[number], budget, made.windows) for number in sorted(runs)]
            for each, runs in curves.items()
        },
        numbers={each: tuple(sorted(runs)) for each, runs in curves.items()},
        human=human_scale(name),
    )


def _saved(game: Game, name: str) -> Sampled:
    reference = game.reference
    return sample(reference.saved_by, game.runs[name], reference, game.numbers[name])


def _compare(
    evaluation: EvaluationResults,
    reference: str,
    games: Mapping[str, Game],
    name: str,
    samples: Mapping[str, Sampled],
) -> Comparison:
    training = evaluation.training.get(name)
    effects = {
        game: _effect(games[game], name, each, None if training is None else game in training.games)
        for game, each in samples.items()
    }
    scopes: dict[Scope, list[str]] = {"all": list(samples)}
    seen = [game for game, effect in effects.items() if effect.seen]
    if 0 < len(seen) < len(samples):
        scopes |= {"seen": seen, "new": [game for game in samples if game not in seen]}
    over = {scope: mean_saved(of, effects, samples) for scope, of in scopes.items() if of}
    return Comparison(
        initialization=name,
        reference=reference,
        runs=min(
            (len(games[game].runs[name]) for game in samples), default=len(evaluation.runs[name])
        ),
        trained=None if training is None else training.agent_steps,
        games=effects,
        over=over,
    )


def _effect(game: Game, name: str, saved: Sampled, seen: bool | None) -> Effect:
    runs, reference = game.runs[name], game.reference
    area_log_ratio = sampled_interval([sample(_area_log_ratio, runs, reference)])
    return Effect(
        reference=reference,
        seen=seen,
        saved=sampled_interval([saved]),
        most=most_that_can_be_saved(reference),
        speed_ups={share: speed_up(runs, reference, share) for share in SHARES}
        if reference.verdict == "sound"
        else {},
        final=_own_final(runs, reference),
        final_difference=sampled_interval([sample(_final_difference, runs, reference)]),
        first_difference=sampled_interval([sample(_first_difference, runs, reference)]),
        area_log_ratio=area_log_ratio if math.isfinite(area_log_ratio.value) else None,
        rate=float(np.mean([agents.rates.mean() for agents in runs])),
        improvement=_improvement(runs, reference, name),
    )


def _final_difference(ours: Means, theirs: Means) -> float:
    return ours.final - theirs.final


def _first_difference(ours: Means, theirs: Means) -> float:
    return ours.first - theirs.first


def _area_log_ratio(ours: Means, theirs: Means) -> float:
    known = np.isfinite(ours.curve) & np.isfinite(theirs.curve)
    areas = [float(np.mean(each.curve[known])) if known.any() else 0.0 for each in (ours, theirs)]
    return math.log(areas[0] / areas[1]) if min(areas) > 0 else math.nan


def _own_final(runs: Sequence[Agents], reference: Reference) -> IntervalEstimate:
    found = sample(lambda ours, _: ours.final, runs, reference)
    return sampled_interval([replace(found, reference_left_out=np.array([]))])


def _improvement(runs: Sequence[Agents], reference: Reference, name: str) -> IntervalEstimate:
    found = bootstrap(
        probability_of_improvement,
        [_areas(runs)],
        [reference.agents.areas],
        seed=derive_seed(0, Purpose.BOOTSTRAP, name, "improvement"),
        resamples=RESAMPLES,
        bounds=(0.0, 1.0),
    )
    return IntervalEstimate(*map(float, found))


def _areas(runs: Sequence[Agents]) -> FloatArray:
    """Return the areas of runs' agents, [R, A]; all as those of one run if runs differ in A."""
    found = [agents.areas for agents in runs]
    if len({len(each) for each in found}) > 1:
        return np.concatenate(found)
    return found[0] if len(found) == 1 else np.array(found)


def _middles(
    games: Mapping[str, Game], names: Sequence[str]
) -> Iterable[tuple[str, IntervalEstimate]]:
    for name in names:
        known = [(game, game.scale) for game in games.values() if name in game.runs]
        learned = [(game, scale) for game, scale in known if scale is not None]
        strata = [scale(_areas(game.runs[name])) for game, scale in learned]
        numbers = {game.numbers.get(name) for game, _ in learned}
        shapes = {stratum.shape[:-1] for stratum in strata}
        if len(shapes) > 1 or len(numbers) > 1:  # runs that some games lack
            strata = [stratum.ravel() for stratum in strata]
        if strata:
            seed = derive_seed(0, Purpose.BOOTSTRAP, name, "middle")
            found = bootstrap(
                interquartile_mean,
                strata,
                seed=seed,
                resamples=RESAMPLES,
                bounds=(-math.inf, math.inf),
            )
            yield name, IntervalEstimate(*map(float, found))
