"""Agents that learn in an experiment's cells, one a cell, and their comparison."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np
from torch import Tensor

from benchmarks.harness import experiment
from benchmarks.harness.cells import Cell, key_of
from benchmarks.harness.tables import markdown
from leap_rl.evaluation.comparison import summarize
from leap_rl.evaluation.page import Table
from leap_rl.evaluation.plots import draw
from leap_rl.evaluation.results import EvaluationResults, LearningCurve, Training
from leap_rl.evaluation.summary import Summary
from leap_rl.evaluation.summary_tables import summary_tables
from leap_rl.evaluation.transfer_plots import curve_panels
from leap_rl.learners.task import Task
from leap_rl.training.rounds.evaluation_slots import RANDOM

INTERVALS: Final = 100
"""Intervals of the budget over which rewards are summed, R."""
COLUMNS: Final = 3
"""Games in a row of a figure."""


class Curve:
    """An agent's rewards: sums over the intervals [R], and its episodes [E]."""

    def __init__(self, budget: int) -> None:
        self.budget = budget
        self._ends = np.linspace(0, budget, INTERVALS + 1)[1:].round().astype(np.int64)
        self._rewards = np.zeros(INTERVALS)
        self._episodes: list[tuple[int, float]] = []

    def add(self, agent_steps: int, rewards: float, episodes: Sequence[float] = ()) -> None:
        """Add the rewards up to an agent step, and the returns of episodes that ended there."""
        self._rewards[np.searchsorted(self._ends, agent_steps)] += rewards
        self._episodes.extend((agent_steps, episode_return) for episode_return in episodes)

    def result(self) -> Mapping[str, Any]:
        return {
            "interval_ends": self._ends.tolist(),
            "rewards": self._rewards.tolist(),
            "agent_steps": [agent_steps for agent_steps, _ in self._episodes],
            "returns": [episode_return for _, episode_return in self._episodes],
        }


def learn(task: Task, start: Tensor, curve: Curve) -> None:
    """Have our agent learn a task, from shared parameters [P]; the task stays open."""
    task.start(start)
    while not task.done:
        progress = task.advance(lambda _: None)
        assert progress.rewards is not None
        returns = [episode.episode_return for episode in progress.episodes]
        curve.add(progress.agent_steps, progress.rewards, returns)


def summary_of(
    cells: Sequence[Cell],
    results: experiment.Results,
    *,
    group: Callable[[Cell], str],
    trained: Training | None = None,
) -> Summary:
    """Summarize agents; their reference is the group of the first cell.

    Args:
        cells: The agents' cells, with `game`, `seed` and `agent_steps`.
        results: Of each cell, the result of `Curve.result`.
        group: Returns the name of an agent's group.
        trained: What made the initialization that the other groups start from, if it is known.
    """
    names = tuple(dict.fromkeys(map(group, cells)))
    games = tuple(dict.fromkeys(cell["game"] for cell in cells))
    curves = [_curve_of(cell, results[key_of(cell)], group(cell)) for cell in cells]
    curves.sort(key=lambda one: (names.index(one.initialization), games.index(one.game)))
    return summarize(
        EvaluationResults(
            initializations=names,
            runs={name: [name] for name in names},
            own_starts={},
            games=games,
            agents_per_game=len({cell["seed"] for cell in cells}),
            agent_steps=cells[0]["agent_steps"],
            curves=tuple(curves),
            training={} if trained is None else dict.fromkeys(names[1:], trained),
        )
    )


def _curve_of(cell: Cell, found: Mapping[str, Any], name: str) -> LearningCurve:
    return LearningCurve(
        initialization=name,
        game=cell["game"],
        seed=cell["seed"],
        interval_ends=np.array(found["interval_ends"], dtype=np.int64),
        rewards=np.array(found["rewards"]),
        agent_steps=np.array(found["agent_steps"], dtype=np.int64),
        returns=np.array(found["returns"], dtype=np.float64),
    )


def write_summary(summary: Summary, path: Path, *, more: Sequence[Table] = ()) -> None:
    """Write a summary's tables, without the fine print, and its verdict; show where they are.

    Args:
        summary: Of agents.
        path: Of the tables in Markdown, and of the learning curves with other suffixes.
        more: Further tables.
    """
    tables = [*(table for table in summary_tables(summary) if not table.folded), *more]
    parts = [f"{table.title}:\n\n{markdown(_known(table.rows))}" for table in tables]
    if summary.reference == RANDOM:  # the sentences are about what an initialization does
        parts.append("".join(f"* {sentence}\n" for sentence in summary.verdict))
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("\n".join(parts))
    panels, names = curve_panels(summary), summary.evaluation.initializations
    drawn = draw(panels, path.with_suffix(""), columns=COLUMNS, names=names)
    experiment.announce([path, *drawn])


def _known(rows: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return rows without the columns in which nothing is known."""
    kept = [name for name in rows[0] if {row[name] for row in rows} - {"–", "unknown"}]
    return [{name: row[name] for name in kept} for row in rows]
