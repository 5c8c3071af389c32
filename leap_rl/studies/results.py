"""A study's finished new agents, as the results of one evaluation over all arms."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from leap_rl.evaluation.measures import means_of
from leap_rl.evaluation.results import EvaluationResults, LearningCurve, Training, read_evaluation
from leap_rl.evaluation.savings import agent_steps_saved
from leap_rl.evaluation.summary import Summary
from leap_rl.runs.config import EvaluateConfig, TrainConfig
from leap_rl.studies.arms import RANDOM, total_agent_steps
from leap_rl.studies.cells import Cell
from leap_rl.studies.config import StudyConfig


def training_of(cells: Sequence[Cell]) -> dict[str, Training]:
    """Return by arm what each of its runs was trained on; nothing is for random starts."""
    return {
        cell.arm: Training(
            agent_steps=float(total_agent_steps(cell.after.config)),
            games=cell.after.config.task.resolved_games,
        )
        for cell in cells
        if cell.after is not None and isinstance(cell.after.config, TrainConfig)
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


def best_run(summary: Summary) -> tuple[str, str] | None:
    """Return the arm, and its run's name, whose new agents save most; none before any learned.

    The best run of the arm that is best over its runs: a single run is largely chance. Where agents
    from random starts gain nothing, final returns decide.
    """
    arms = {comparison.initialization for comparison in summary.comparisons if comparison.games}
    scores = {arm: _scores(summary, arm) for arm in arms}
    if not scores:
        return None
    arm = max(sorted(scores), key=lambda name: float(np.mean(scores[name])))
    return arm, summary.evaluation.runs[arm][int(np.argmax(scores[arm]))]


def _scores(summary: Summary, arm: str) -> list[float]:
    """Return the agent steps that each of an arm's runs saves, or its final return."""
    runs = min(len(game.runs.get(arm, ())) for game in summary.games.values())
    found = []
    for run in range(runs):
        pairs = [
            (means_of([game.runs[arm][run]]), game.reference) for game in summary.games.values()
        ]
        saved = [agent_steps_saved(ours, each.means, each.budget) for ours, each in pairs]
        finals = [ours.final for ours, _ in pairs]
        found.append(float(np.mean(saved if np.isfinite(saved).all() else finals)))
    return found or [float("-inf")]
