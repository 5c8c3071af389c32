"""An evaluation's agents and comparisons as rows: for wandb's tables and for data frames."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from leap_rl.evaluation.statistics import IntervalEstimate
from leap_rl.evaluation.summary import Differences, Summary
from leap_rl.evaluation.verdict import conclusion_of
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


def log_outcome(summary: Summary, report: Path, *, tracker: Tracker) -> None:
    """Log a complete evaluation's tables, its verdict and its report."""
    tracker.log_table("evaluation/agents", AGENTS, list(agents_of(summary)))
    tracker.log_table("evaluation/comparisons", COMPARISONS, list(comparisons_of(summary)))
    tracker.log_table("evaluation/verdict", ["verdict"], [[each] for each in summary.verdict])
    tracker.log_file("evaluation/report", report)


def agents_of(summary: Summary) -> Iterable[list[Cell]]:
    """Yield a row of `AGENTS` for each agent."""
    for agent in (each for agents in summary.agents.values() for each in agents):
        curve = agent.curve
        run = summary.evaluation.runs[curve.initialization][curve.run]
        yield [
            *(curve.initialization, run, curve.game, curve.seed, len(curve.returns)),
            *(agent.area, agent.final, agent.drawdown, agent.agent_steps_to_level),
        ]


def comparisons_of(summary: Summary) -> Iterable[list[Cell]]:
    """Yield rows of `COMPARISONS`, with 95 % intervals: of each game raw, of all in deviations."""
    for comparison in summary.comparisons:
        names = (comparison.initialization, comparison.reference)
        for game, differences in comparison.games.items():
            yield [*names, game, comparison.pairs[game], *_cells(differences), None]
        if comparison.over_games is not None:
            fewest = min(comparison.pairs.values())
            cells = _cells(comparison.over_games)
            yield [*names, ALL_GAMES, fewest, *cells, conclusion_of(comparison)]


def _cells(found: Differences) -> list[Cell]:
    intervals: list[IntervalEstimate | None] = [found.area, found.gain, found.final]
    cells: list[Cell] = [cell for each in intervals for cell in each or (None, None, None)]
    return [*cells, found.improvement.value]
