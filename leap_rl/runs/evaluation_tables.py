"""An evaluation's agents and estimates as rows: for wandb's tables and for data frames."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from leap_rl.evaluation.estimates import ESTIMATES, estimate_rows
from leap_rl.evaluation.measures import measure, windows_of
from leap_rl.evaluation.summary import Summary
from leap_rl.tracking.sink import Cell
from leap_rl.tracking.tracker import Tracker

AGENTS = (
    *("initialization", "run", "game", "seed", "restarted", "episodes"),
    *("area", "first return", "final return", "reward rate"),
)


def log_outcome(summary: Summary, report: Path, *, tracker: Tracker) -> None:
    """Log a complete evaluation's tables, its verdict and its report."""
    tracker.log_table("evaluation/agents", AGENTS, list(agents_of(summary)))
    rows = [list(row.values()) for row in estimate_rows(summary)]
    tracker.log_table("evaluation/estimates", ESTIMATES, rows)
    tracker.log_table("evaluation/verdict", ["verdict"], [[each] for each in summary.verdict])
    tracker.log_file("evaluation/report", report)


def agents_of(summary: Summary) -> Iterable[list[Cell]]:
    """Yield a row of `AGENTS` for each agent.

    First and final returns are over the reference's windows; where it has none yet, over its own.
    """
    evaluation = summary.evaluation
    for curve in evaluation.curves:
        run = evaluation.runs.get(curve.initialization, [curve.initialization])[curve.run]
        game = summary.games.get(curve.game)
        windows = game.reference.windows if game else windows_of([curve], evaluation.agent_steps)
        agent = measure([curve], evaluation.agent_steps, windows)
        measures = (agent.areas, agent.first, agent.final, agent.rates)
        yield [
            *(curve.initialization, run, curve.game, curve.seed, curve.restarted),
            len(curve.returns),
            *(float(each[0]) for each in measures),
        ]
