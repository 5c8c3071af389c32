"""Learning curves of agents, and what is measured of them.

All is of raw returns by agent steps. An agent's curve is a centred moving mean over agent steps:
one over so many episodes would lag where episodes are long, and flatter curves that fall. It is
unknown before the first episode has ended, and never filled backwards.

Dimensions: E episodes of an agent, G points of a grid, A agents of a run, R runs.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Final, NamedTuple

import numpy as np

from leap_rl.evaluation.results import LearningCurve
from leap_rl.evaluation.statistics import FloatArray
from leap_rl.training.rounds.validation import RATE_UNIT

GRID_POINTS: Final = 200
HALF_WINDOW: Final = 10
"""Points of the grid, a twentieth of the budget: what a curve is the mean over, to either side."""
PARTS: Final = 40
"""Of the budget: first and final returns are of whole parts, so that their edges are exact."""
LEAST_PARTS: Final = 4
"""A tenth of the budget at its start, and one at its end."""
MOST_PARTS: Final = 20
LEAST_EPISODES: Final = 10


class Windows(NamedTuple):
    """Where first and final returns are taken, in agent steps: up to, and after."""

    first: float
    final: float
    found: bool = True
    """Whether every agent has `LEAST_EPISODES` in both."""


def grid(budget: int) -> FloatArray:
    """Return equally spaced agent steps, the last at the end of the budget, [G]."""
    return _at(budget, 0)


def _at(budget: int, shift: int) -> FloatArray:
    # Exact wherever it is whole, as ends of episodes are.
    return budget * (np.arange(1, GRID_POINTS + 1) + shift) / GRID_POINTS


def smoothed(curve: LearningCurve, budget: int) -> tuple[FloatArray, FloatArray]:
    """Return an agent's curve, [G], and its variance that the choice of episodes makes, [G].

    At a point it is the mean return of the episodes that ended within `HALF_WINDOW` of it, between
    such points a straight line, NaN before the first end. The variance is that of those returns
    over their number, NaN for fewer than two.
    """
    points = grid(budget)
    nothing = np.full(GRID_POINTS, np.nan)
    if not len(curve.returns):
        return nothing, nothing
    ends = curve.agent_steps
    start = np.searchsorted(ends, _at(budget, -HALF_WINDOW), side="left")
    stop = np.searchsorted(ends, _at(budget, HALF_WINDOW), side="right")
    counts = stop - start
    # Around their mean, or rounding would drown the variance of large returns.
    centre = float(curve.returns.mean())
    offsets = curve.returns - centre
    sums, squares = (np.concatenate([[0.0], np.cumsum(offsets**power)]) for power in (1, 2))
    with np.errstate(invalid="ignore", divide="ignore"):
        means = (sums[stop] - sums[start]) / counts
        spread = (squares[stop] - squares[start] - counts * means**2) / (counts - 1) / counts
    there = counts > 0
    values = centre + np.interp(points, points[there], means[there]) if there.any() else nothing
    known = points >= ends[0]
    return (
        np.where(known, values, np.nan),
        np.where(known & (counts > 1), np.maximum(spread, 0.0), np.nan),
    )


def windows_of(curves: Sequence[LearningCurve], budget: int) -> Windows:
    """Return the budget's first and last tenth, widened until all agents have episodes there."""
    ends = [curve.agent_steps for curve in curves]

    def enough(parts: int, *, final: bool) -> bool:
        edge = budget * (PARTS - parts if final else parts) / PARTS
        before = [int(np.searchsorted(each, edge, side="right")) for each in ends]
        inside = [len(each) - n if final else n for each, n in zip(ends, before, strict=True)]
        return min(inside, default=0) >= LEAST_EPISODES

    widths = range(LEAST_PARTS, MOST_PARTS + 1)
    first, last = (
        next((parts for parts in widths if enough(parts, final=final)), None)
        for final in (False, True)
    )
    return Windows(
        first=budget * (first or MOST_PARTS) / PARTS,
        final=budget * (PARTS - (last or MOST_PARTS)) / PARTS,
        found=first is not None and last is not None,
    )


@dataclass(frozen=True, kw_only=True, slots=True)
class Agents:
    """What is measured of the agents of one run in one game."""

    curves: FloatArray
    """[A, G]."""
    variances: FloatArray
    """Of the curves, from their episodes, [A, G]."""
    first: FloatArray
    """Mean returns in the first window, [A]; NaN without an episode."""
    final: FloatArray
    """The same in the final window, [A]."""
    rates: FloatArray
    """Raw reward per 1,000 agent steps, in unfinished episodes too, [A]."""

    def __len__(self) -> int:
        return len(self.rates)

    def without(self, agent: int) -> Agents:
        """Return all but one agent."""
        names = [one.name for one in fields(self)]
        return Agents(**{n: np.delete(getattr(self, n), agent, axis=0) for n in names})

    @property
    def areas(self) -> FloatArray:
        """Each agent's mean return over the budget, from its first episode's end on, [A]."""
        return mean_over(self.curves, axis=1)


@dataclass(frozen=True, kw_only=True, slots=True)
class Means:
    """Means over the agents of runs, in which each run counts the same."""

    curve: FloatArray
    """[G]; known where every agent's is."""
    first: float
    final: float
    rate: float


def measure(curves: Sequence[LearningCurve], budget: int, windows: Windows) -> Agents:
    """Measure the agents of one run in one game."""
    pairs = [smoothed(curve, budget) for curve in curves]
    values, variances = (
        np.array([pair[which] for pair in pairs]).reshape(-1, GRID_POINTS) for which in (0, 1)
    )
    return Agents(
        curves=values,
        variances=variances,
        first=np.array([_mean_return(curve, -1, windows.first) for curve in curves]),
        final=np.array([_mean_return(curve, windows.final, budget) for curve in curves]),
        rates=np.array([RATE_UNIT * float(np.sum(each.rewards)) / budget for each in curves]),
    )


def means_of(runs: Sequence[Agents]) -> Means:
    """Return the means over runs of the means over each one's agents."""
    return Means(
        curve=np.mean([mean_curve(agents.curves) for agents in runs], axis=0),
        first=float(np.mean([mean_over(agents.first) for agents in runs])),
        final=float(np.mean([mean_over(agents.final) for agents in runs])),
        rate=float(np.mean([mean_over(agents.rates) for agents in runs])),
    )


def mean_curve(curves: FloatArray) -> FloatArray:
    """Return the mean of curves [A, G] where all are known, [G]; NaN of none."""
    return np.asarray(curves.mean(axis=0)) if len(curves) else np.full(curves.shape[1], np.nan)


def mean_over(values: FloatArray, axis: int = 0) -> FloatArray:
    """Return the mean of what is known; NaN where nothing is."""
    known = np.isfinite(values)
    with np.errstate(invalid="ignore"):
        return np.asarray(np.where(known, values, 0.0).sum(axis=axis) / known.sum(axis=axis))


def _mean_return(curve: LearningCurve, after: float, until: float) -> float:
    """Return the mean return of the episodes that ended there, else of the one before or after."""
    if not len(curve.returns):
        return float("nan")
    start = int(np.searchsorted(curve.agent_steps, after, side="right"))
    stop = int(np.searchsorted(curve.agent_steps, until, side="right"))
    if start == stop:
        start = min(max(start - 1, 0), len(curve.returns) - 1)
        stop = start + 1
    return float(curve.returns[start:stop].mean())
