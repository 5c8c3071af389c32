"""Agents that learn in an experiment's cells, each alone, and how they compare."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import numpy as np
from torch import Tensor

from benchmarks.harness import experiment
from benchmarks.harness.cells import Cell, key_of
from leap_rl.evaluation.comparison import summarize
from leap_rl.evaluation.results import Evaluation, LearningCurve
from leap_rl.evaluation.statistics import shown
from leap_rl.evaluation.summary import Comparison, Summary
from leap_rl.learners.task import Task

INTERVALS: Final = 100
"""Intervals of the budget whose rewards are summed up, R."""


class Curve:
    """What an agent earns: sums over the intervals [R], and its episodes [E]."""

    def __init__(self, budget: int) -> None:
        self.budget = budget
        self._ends = np.linspace(0, budget, INTERVALS + 1)[1:].round().astype(np.int64)
        self._rewards = np.zeros(INTERVALS)
        self._episodes: list[tuple[int, float]] = []

    def add(self, agent_steps: int, rewards: float, episodes: Sequence[float] = ()) -> None:
        """Add what was earned up to an agent step, and the returns of what ended there."""
        self._rewards[np.searchsorted(self._ends, agent_steps)] += rewards
        self._episodes.extend((agent_steps, episode_return) for episode_return in episodes)

    def result(self) -> Mapping[str, Any]:
        """Return it as plain lists."""
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
    cells: Sequence[Cell], results: experiment.Results, *, group: Callable[[Cell], str]
) -> Summary:
    """Return what agents come to; their reference is the group of the first cell.

    Args:
        cells: The agents', with `game`, `seed` and `agent_steps`.
        results: Theirs have what `Curve.result` returned.
        group: Names the group that an agent is of.
    """
    names = tuple(dict.fromkeys(map(group, cells)))
    games = tuple(dict.fromkeys(cell["game"] for cell in cells))
    curves = [_curve_of(cell, results[key_of(cell)], group(cell)) for cell in cells]
    curves.sort(key=lambda one: (names.index(one.initialization), games.index(one.game)))
    return summarize(
        Evaluation(
            initializations=names,
            runs={name: [name] for name in names},
            own_starts={},
            games=games,
            seeds=len({cell["seed"] for cell in cells}),
            agent_steps=cells[0]["agent_steps"],
            curves=tuple(curves),
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


def compared(summary: Summary, comparison: Comparison, game: str) -> list[str]:
    """Return a comparison in a game as a table's cells: gain in area, final returns, difference."""
    found = comparison.games[game]
    sides = (comparison.reference, comparison.initialization)
    finals = [np.mean(summary.values(one, game, "final")) for one in sides]
    return [
        "" if found.gain is None else shown(found.gain, "+.0f", scale=100),
        *(f"{final:.1f}" for final in finals),
        "" if found.final is None else shown(found.final, "+.1f"),
    ]
