"""Measures of one agent's learning: how high, how fast, how steadily.

The area is that under the rate of raw rewards, and does not depend on when episodes end. The other
measures are of the curve of returns: their moving mean over episodes in the order of their ends,
"scores are reported as moving average over 500 episodes" (the paper, figure of the appendix on
Atari). It is a step function of agent steps: from the end of an episode on it is the mean of the
last `window` episodes, of fewer at the start. Measures are NaN with too few episodes.

Dimensions: E episodes of an agent, R intervals, T points of a grid.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from leap_rl.evaluation.results import LearningCurve
from leap_rl.evaluation.statistics import FloatArray
from leap_rl.training.rounds.validation import RATE_UNIT

PAPER_WINDOW = 500
"""Episodes of the paper's moving mean."""
WINDOW_SHARE = 0.1
"""The largest part of an agent's episodes that a window takes."""
GRID_POINTS = 200
END_SHARE = 0.1
"""The part of the budget at its start and its end that the first and final performance are of."""


@dataclass(frozen=True, kw_only=True, slots=True)
class AgentMeasures:
    """One agent's measures."""

    curve: LearningCurve
    area: float
    """Raw reward per 1,000 agent steps."""
    final: float
    """A raw return."""
    drawdown: float
    """A share of what had been gained."""
    agent_steps_to_level: float
    """Infinite where the level was not reached, NaN where the game has none."""


def window_of(curves: Iterable[LearningCurve]) -> int:
    """Return the window in episodes: the paper's 500, or a tenth of the median agent's if less."""
    episodes = [len(curve.returns) for curve in curves]
    median = float(np.median(episodes)) if episodes else 0.0
    return max(1, min(PAPER_WINDOW, round(WINDOW_SHARE * median)))


def moving_mean(returns: FloatArray, window: int) -> FloatArray:
    """Return the mean of each return and the `window` − 1 before it, [E]; of fewer at the start."""
    sums = np.concatenate([[0.0], np.cumsum(returns, dtype=np.float64)])
    ends = np.arange(1, len(returns) + 1)
    starts = np.maximum(ends - window, 0)
    return np.asarray((sums[ends] - sums[starts]) / (ends - starts), dtype=np.float64)


def grid(budget: int) -> NDArray[np.int64]:
    """Return equally spaced agent steps, the last at the end of the budget, [T]."""
    return np.round(np.linspace(budget / GRID_POINTS, budget, GRID_POINTS)).astype(np.int64)


def on_grid(curve: LearningCurve, agent_steps: NDArray[np.int64], window: int) -> FloatArray:
    """Return the curve at agent steps, [T]: NaN before the first episode ended."""
    means = moving_mean(curve.returns, window)
    newest = np.searchsorted(curve.agent_steps, agent_steps, side="right")
    return np.concatenate([[np.nan], means])[newest]


def reward_rates(curve: LearningCurve) -> FloatArray:
    """Return the raw reward per 1,000 agent steps in each interval, [R]."""
    return RATE_UNIT * curve.rewards / np.diff(curve.interval_ends, prepend=0)


def area(curve: LearningCurve, budget: int) -> float:
    """Return the area under the reward rates by the budget: raw reward per 1,000 agent steps."""
    return float(RATE_UNIT * np.sum(curve.rewards) / budget)


def final_performance(curve: LearningCurve, budget: int) -> float:
    """Return the mean return of episodes that ended in the last tenth, or of the last."""
    return _mean_of(curve, curve.agent_steps > (1 - END_SHARE) * budget, otherwise=-1)


def first_performance(curve: LearningCurve, budget: int) -> float:
    """Return the mean return of episodes that ended in the first tenth, or of the first."""
    return _mean_of(curve, curve.agent_steps <= END_SHARE * budget, otherwise=0)


def _mean_of(curve: LearningCurve, chosen: NDArray[np.bool_], *, otherwise: int) -> float:
    """Return the chosen episodes' mean return, else one episode's; NaN without episodes."""
    if not len(curve.returns):
        return math.nan
    return float(np.mean(curve.returns[chosen]) if chosen.any() else curve.returns[otherwise])


def agent_steps_to(curve: LearningCurve, level: float, window: int) -> float:
    """Return the agent steps after which the curve is at a level; infinite if it never is.

    Only means over a full window count. NaN for a level that is NaN.
    """
    if math.isnan(level):
        return math.nan
    there = np.flatnonzero(_full_means(curve, window) >= level)
    return float(curve.agent_steps[there[0] + window - 1]) if len(there) else math.inf


def drawdown(curve: LearningCurve, budget: int, window: int) -> float:
    """Return the share of the gain that is lost, on the mean over agent steps.

    With the curve m, its best so far M and its beginning m₀ it is ∫ (M − m) / ∫ (M − m₀): 0 for an
    agent that never loses what it has learned. After Chan et al. 2020, "Measuring the Reliability
    of Reinforcement Learning Algorithms", whose drawdowns are means of the worst ones in raw
    returns. Only means over a full window count; NaN where there is none.
    """
    means = _full_means(curve, window)
    if not len(means):
        return math.nan
    best = np.maximum.accumulate(means)
    starts = curve.agent_steps[window - 1 :]
    spans = np.append(starts[1:], budget) - starts
    lost = float(np.sum((best - means) * spans))
    gained = float(np.sum((best - means[0]) * spans))
    if gained > 0:
        return lost / gained
    return 1.0 if lost > 0 else 0.0


def measure(curve: LearningCurve, *, budget: int, window: int, level: float) -> AgentMeasures:
    """Return an agent's measures, with its budget in agent steps and the window in episodes."""
    return AgentMeasures(
        curve=curve,
        area=area(curve, budget),
        final=final_performance(curve, budget),
        drawdown=drawdown(curve, budget, window),
        agent_steps_to_level=agent_steps_to(curve, level, window),
    )


def _full_means(curve: LearningCurve, window: int) -> FloatArray:
    """Return the moving means over a full window, [E − window + 1] or none."""
    return moving_mean(curve.returns, window)[window - 1 :]
