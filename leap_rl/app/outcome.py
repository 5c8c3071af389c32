"""Logs what an evaluation came to: every agent's scores, the comparisons, the verdict, the page."""

from __future__ import annotations

from collections.abc import Iterable

from leap_rl.app.report import write_report
from leap_rl.evaluation.comparison import summarize
from leap_rl.evaluation.results import read_evaluation
from leap_rl.evaluation.statistics import Estimate, Mean
from leap_rl.evaluation.summary import Comparison, Summary
from leap_rl.evaluation.verdict import conclusion_of, notes_of, verdict_of
from leap_rl.storage.run_folder import RunFolder
from leap_rl.tracking.sink import Cell
from leap_rl.tracking.tracker import Tracker

AGENTS = (
    *("initialization", "run", "game", "seed", "episodes", "area", "final return", "drawdown"),
    "agent steps to the baseline's level",
)
COMPARISONS = (
    *("initialization", "reference", "game", "seeds"),
    *("area", "area low", "area high", "area gain", "area gain low", "area gain high"),
    *("final return", "final return low", "final return high"),
    *("probability of improvement", "verdict"),
)
ALL_GAMES = "all games"


def log_outcome(folder: RunFolder, *, tracker: Tracker) -> None:
    """Log an evaluation's tables and its report, which is written again.

    Args:
        folder: The evaluation's; it is complete.
        tracker: Logs them.
    """
    evaluation = read_evaluation(folder)
    if evaluation.curves:  # or every task was dropped
        summary = summarize(evaluation)
        tracker.log_table("evaluation/agents", AGENTS, list(_agents(summary)))
        tracker.log_table("evaluation/comparisons", COMPARISONS, list(_comparisons(summary)))
        said = [*map(verdict_of, summary.comparisons), *notes_of(summary)]
        tracker.log_table("evaluation/verdict", ["verdict"], [[sentence] for sentence in said])
    tracker.log_file("evaluation/report", write_report([folder]))


def _agents(summary: Summary) -> Iterable[list[Cell]]:
    for agents in summary.agents.values():
        for agent in agents:
            run = summary.evaluation.runs[agent.initialization][agent.run]
            yield [
                *(agent.initialization, run, agent.game, agent.seed, agent.episodes),
                *(agent.area, agent.final, agent.drawdown, agent.agent_steps_to_level),
            ]


def _comparisons(summary: Summary) -> Iterable[list[Cell]]:
    """Return differences with 95 % intervals: of each game raw, of all in deviations."""
    for comparison in summary.comparisons:
        for game in comparison.games:
            yield [
                *(comparison.initialization, comparison.reference, game.game, game.seeds),
                *_interval(game.area_difference),
                *_interval(game.area_gain),
                *_interval(game.final_difference),
                *(game.improvement.value, None),
            ]
        if comparison.games:
            yield _over_games(comparison)


def _over_games(comparison: Comparison) -> list[Cell]:
    improvement = comparison.improvement
    return [
        *(comparison.initialization, comparison.reference, ALL_GAMES),
        comparison.seeds[0],
        *_interval(comparison.area_difference),
        *_interval(comparison.area_gain),
        *_interval(comparison.final_difference),
        *(None if improvement is None else improvement.value, conclusion_of(comparison)),
    ]


def _interval(mean: Mean | Estimate | None) -> tuple[Cell, Cell, Cell]:
    return (None, None, None) if mean is None else (mean[0], mean[1], mean[2])
