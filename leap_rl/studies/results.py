"""A study's finished new agents, as the results of one evaluation over all arms."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

import numpy as np

from leap_rl.evaluation.measures import means_of
from leap_rl.evaluation.results import EvaluationResults, LearningCurve, Training, read_evaluation
from leap_rl.evaluation.summary import Game, Summary
from leap_rl.runs.config import TrainConfig
from leap_rl.studies.arms import RANDOM, total_agent_steps
from leap_rl.studies.cells import Cell
from leap_rl.studies.choice import Choice, agents_that_choose, read_choices
from leap_rl.studies.config import StudyConfig


def training_of(cells: Sequence[Cell]) -> dict[str, Training]:
    """Return by arm what each of its runs was trained on; nothing is for random starts.

    Runs of each member alone are one together.
    """
    found: dict[str, dict[str | None, TrainConfig]] = {}
    for cell in cells:
        if cell.after is not None and isinstance(cell.after.config, TrainConfig):
            found.setdefault(cell.arm, {})[cell.alone] = cell.after.config
    return {
        arm: Training(
            agent_steps=float(sum(map(total_agent_steps, configs.values()))),
            games=tuple(game for one in configs.values() for game in one.task.resolved_games),
        )
        for arm, configs in found.items()
    }


def read_results(
    study: StudyConfig, cells: Sequence[Cell], choices: Iterable[Choice] | None = None
) -> EvaluationResults:
    """Return the new agents of all finished cells.

    Runs of an arm are numbered as they come, so that one that is missing leaves no gap. What new
    agents chose is read from the cells unless it is given.

    Raises:
        RunFolderError: A cell's folder is damaged.
    """
    evaluations = list(_evaluations(cells))
    curves = [curve for cell, each in evaluations for curve in _curves(study, cell, each)]
    chosen = list(read_choices(cells) if choices is None else choices)
    curves += [choice.curve for choice in chosen]
    dropped = _dropped(cells, evaluations, chosen)
    # A run whose agents were all dropped is none of the runs below.
    kept = {(curve.initialization, curve.run) for curve in curves}
    arms = [
        arm for arm in (RANDOM, *study.trained_arms) if any(c.initialization == arm for c in curves)
    ]
    names: dict[str, list[str]] = {RANDOM: [RANDOM]} if RANDOM in arms else {}
    for arm in study.trained_arms:
        if runs := sorted({curve.run for curve in curves if curve.initialization == arm}):
            names[arm] = [f"{arm}-{run}" for run in runs]
            curves = [
                replace(c, run=runs.index(c.run)) if c.initialization == arm else c for c in curves
            ]
    games = tuple(game for game in study.evaluated if any(c.game == game for c in curves))
    curves.sort(key=lambda c: (arms.index(c.initialization), games.index(c.game), c.run, c.seed))
    return EvaluationResults(
        initializations=tuple(arms),
        runs=names,
        own_starts={},
        games=games,
        agents_per_game=study.agents,
        agent_steps=study.new_agents_task().agent_steps,
        curves=tuple(curves),
        training=training_of(cells),
        random_agents=study.baseline_agents,
        dropped=sum(count for run, count in dropped.items() if run in kept),
    )


def _dropped(
    cells: Sequence[Cell],
    evaluations: Sequence[tuple[Cell, EvaluationResults]],
    choices: Iterable[Choice],
) -> Counter[tuple[str, int]]:
    """Return how many agents diverged and were dropped, by arm and run."""
    found = agents_that_choose(cells)
    found.subtract(Counter((each.curve.initialization, each.curve.run) for each in choices))
    for cell, each in evaluations:
        found[cell.arm, 0 if cell.arm == RANDOM else cell.run] += each.dropped
    return found


def _evaluations(cells: Sequence[Cell]) -> Iterator[tuple[Cell, EvaluationResults]]:
    """Yield finished cells of new agents that choose nothing, and their results."""
    for cell in cells:
        if cell.members is not None and cell.alone is None and cell.finished:
            yield cell, read_evaluation(cell.folder)


def _curves(study: StudyConfig, cell: Cell, of: EvaluationResults) -> Iterator[LearningCurve]:
    """Yield a cell's curves with their arm and the arm's run."""
    for curve in of.curves:
        if cell.arm == RANDOM:  # its cells are parts of one group of agents
            seed = cell.run * study.agents + curve.seed
            yield replace(curve, initialization=RANDOM, seed=seed)
        else:
            yield replace(curve, initialization=cell.arm, run=cell.run)


def of_arms(results: EvaluationResults, arms: Sequence[str]) -> EvaluationResults:
    """Return the results of some of the arms alone."""
    kept = tuple(name for name in results.initializations if name in arms)
    return replace(
        results,
        initializations=kept,
        runs={name: results.runs[name] for name in kept},
        curves=tuple(curve for curve in results.curves if curve.initialization in kept),
    )


def best_run(summary: Summary) -> tuple[str, str] | None:
    """Return the arm, and its run's name, whose new agents save most; none before any learned.

    The arm is that which the verdict names, and the best of its runs: a single run of all arms is
    largely chance. Where no agent steps can be measured in games that all arms have, final returns
    decide.
    """
    ranking = summary.ranking
    if ranking is not None:
        games = [summary.games[game] for game in ranking.games]
        scores = {ranking.best: _scores(games, ranking.best, saved=True)}
    else:
        arms = sorted(each.initialization for each in summary.comparisons if each.games)
        scores = {arm: _scores([*summary.games.values()], arm, saved=False) for arm in arms}
    scores = {arm: found for arm, found in scores.items() if found}
    if not scores:
        return None
    arm = max(scores, key=lambda name: float(np.mean([*scores[name].values()])))
    run = max(scores[arm], key=lambda number: scores[arm][number])
    return arm, summary.evaluation.runs[arm][run]


def _scores(games: Sequence[Game], arm: str, *, saved: bool) -> dict[int, float]:
    """Return what each of an arm's runs that has agents in all games saves, or its final return."""
    runs = [
        dict(zip(game.numbers.get(arm, ()), game.runs.get(arm, ()), strict=True)) for game in games
    ]
    found = {}
    for number in sorted(set.intersection(*map(set, runs))):
        means = [means_of([of[number]]) for of in runs]
        values = [ours.final for ours in means]
        if saved:
            pairs = zip(means, (game.reference for game in games), strict=True)
            values = [each.saved_by(ours) for ours, each in pairs]
        found[number] = float(np.mean(values))
    return found
