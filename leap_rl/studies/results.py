"""A study's finished new agents, as the results of one evaluation over all arms."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from leap_rl.evaluation.results import EvaluationResults, LearningCurve, read_evaluation
from leap_rl.evaluation.statistics import FloatArray
from leap_rl.runs.config import EvaluateConfig, TrainConfig
from leap_rl.studies.arms import RANDOM, total_agent_steps
from leap_rl.studies.cells import Cell
from leap_rl.studies.config import StudyConfig

GRID = 100
"""Points of the budget at which `run_scores` looks at an agent's returns."""


@dataclass(frozen=True, kw_only=True)
class Training:
    """What an arm's starts were made from."""

    agent_steps: float
    """Of one meta-training run."""
    games: tuple[str, ...]


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
    )


def _budget(cells: Sequence[Cell], study: StudyConfig) -> int:
    budgets = [c.config.task.agent_steps for c in cells if isinstance(c.config, EvaluateConfig)]
    return budgets[0] if budgets else study.new_agents_task().agent_steps


def comparable(results: EvaluationResults) -> EvaluationResults:
    """Return the results with as many agents from random starts as from each run.

    `summarize` compares pairs of agents that share their seeds; the others have none.
    """
    curves = tuple(curve for curve in results.curves if curve.seed < results.agents_per_game)
    return replace(results, curves=curves)


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
    """Return how well new agents learned, by arm and run: what chooses the best initialization.

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


def best_run(results: EvaluationResults) -> tuple[str, str] | None:
    """Return the arm, and its run's name, whose new agents learned best; none before any did.

    The best run of the arm that is best over its runs: a single run is largely chance.
    """
    scores = {key: score for key, score in run_scores(results).items() if key[0] != RANDOM}
    if not scores:
        return None
    by_arm: dict[str, list[float]] = {}
    for (arm, _), score in scores.items():
        by_arm.setdefault(arm, []).append(score)
    arm = max(by_arm, key=lambda name: float(np.mean(by_arm[name])))
    run = max((key[1] for key in scores if key[0] == arm), key=lambda number: scores[arm, number])
    return arm, results.runs[arm][run]
