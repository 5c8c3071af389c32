"""A study's finished new agents, as the results of one evaluation over all arms."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from leap_rl.evaluation.results import (
    EvaluationResults,
    LearningCurve,
    Training,
    read_evaluation,
)
from leap_rl.evaluation.statistics import FloatArray
from leap_rl.evaluation.summary import Summary
from leap_rl.runs.config import EvaluateConfig, TrainConfig
from leap_rl.studies.arms import RANDOM, total_agent_steps
from leap_rl.studies.cells import Cell
from leap_rl.studies.config import StudyConfig

GRID = 100
"""Points of the budget at which `run_scores` looks at an agent's returns."""


def training_of(cells: Sequence[Cell]) -> dict[str, Training]:
    """Return by arm what each of its runs was trained on; nothing is for random starts."""
    return {
        cell.arm: Training(
            agent_steps=float(total_agent_steps(cell.config)),
            games=cell.config.task.resolved_games,
        )
        for cell in cells
        if isinstance(cell.config, TrainConfig)
    }


def read_results(study: StudyConfig, cells: Sequence[Cell]) -> EvaluationResults:
    """Return the new agents of all finished cells.

    Runs of an arm are numbered as they come, so that one that is missing leaves no gap.

    Raises:
        RunFolderError: A cell's folder is damaged.
    """
    found = [cell for cell in cells if cell.members is not None and cell.finished]
    arms = [name for name in (RANDOM, *study.trained_arms) if any(c.arm == name for c in found)]
    names: dict[str, list[str]] = {}
    for arm in arms:
        runs = dict.fromkeys(cell.run for cell in found if cell.arm == arm)
        names[arm] = [RANDOM] if arm == RANDOM else [f"{arm}-{run}" for run in runs]
    curves: list[LearningCurve] = []
    for cell in found:
        for curve in read_evaluation(cell.folder).curves:
            if cell.arm == RANDOM:  # its cells are parts of one group of agents
                seed = cell.run * study.agents + curve.seed
                curves.append(replace(curve, initialization=RANDOM, seed=seed))
            else:
                run = names[cell.arm].index(f"{cell.arm}-{cell.run}")
                curves.append(replace(curve, initialization=cell.arm, run=run))
    games = tuple(game for game in study.evaluated if any(c.game == game for c in curves))
    curves.sort(key=lambda c: (arms.index(c.initialization), games.index(c.game), c.run, c.seed))
    return EvaluationResults(
        initializations=tuple(arms),
        runs=names,
        own_starts={},
        games=games,
        agents_per_game=study.agents,
        agent_steps=_budget(found, study),
        curves=tuple(curves),
        training=training_of(cells),
        random_agents=study.baseline_agents,
    )


def _budget(cells: Sequence[Cell], study: StudyConfig) -> int:
    budgets = [c.config.task.agent_steps for c in cells if isinstance(c.config, EvaluateConfig)]
    return budgets[0] if budgets else study.new_agents_task().agent_steps


def of_arms(results: EvaluationResults, arms: Sequence[str]) -> EvaluationResults:
    """Return the results of some of the arms alone."""
    kept = tuple(name for name in results.initializations if name in arms)
    return replace(
        results,
        initializations=kept,
        runs={name: results.runs[name] for name in kept},
        curves=tuple(curve for curve in results.curves if curve.initialization in kept),
    )


def run_scores(results: EvaluationResults) -> Mapping[tuple[str, int], float]:
    """Return how well new agents learned, by arm and run: what chooses among an arm's runs.

    The mean return over the budget, in each member in standard deviations of all its agents, so
    that members count the same.
    """
    scores: dict[tuple[str, int], list[float]] = {}
    for game in results.games:
        curves = [c for c in results.curves if c.game == game and len(c.returns)]
        grid = np.linspace(0.0, results.agent_steps, GRID)
        values: FloatArray = np.array(
            [np.interp(grid, c.agent_steps, c.returns).mean() for c in curves]
        )
        spread = float(values.std()) or 1.0
        for curve, value in zip(curves, (values - values.mean()) / spread, strict=True):
            scores.setdefault((curve.initialization, curve.run), []).append(float(value))
    return {key: float(np.mean(of_run)) for key, of_run in scores.items()}


def best_run(summary: Summary) -> tuple[str, str] | None:
    """Return the arm, and its run's name, from which to start; none before any agents learned.

    The arm that saves most, over all members; of its runs the one whose new agents learned best.
    """
    scores = run_scores(summary.evaluation)
    saved = {
        each.initialization: each.over["all"].saved.value
        for each in summary.comparisons
        if "all" in each.over
    }
    if not saved:
        return None
    # Where agents from random starts do not learn nothing can be saved: then by the returns alone.
    known = {arm: value for arm, value in saved.items() if np.isfinite(value)}
    means = {
        arm: float(np.mean([score for key, score in scores.items() if key[0] == arm]))
        for arm in saved
    }
    arm = max(known or means, key=lambda name: known.get(name, means[name]))
    run = max((key[1] for key in scores if key[0] == arm), key=lambda number: scores[arm, number])
    return arm, summary.evaluation.runs[arm][run]
