"""What an evaluation found: the learning curves of its agents, by initialization, game and seed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

RANDOM = "random"
"""Names the baseline: agents whose encoders start at random."""


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class LearningCurve:
    """The episodes of one agent, in the order in which they ended; E of them, maybe none."""

    initialization: str
    """What its encoder started from; `RANDOM` for the baseline."""
    game: str
    seed: int
    """Counts from 0. Agents of the same game and seed are a pair: they share everything but the
    encoder's start."""
    agent_steps: NDArray[np.int64]
    """Agent steps of the task, over its environments, when the episode ended, [E], ascending."""
    returns: NDArray[np.float64]
    """Raw returns, [E]."""
    lengths: NDArray[np.int64]
    """Agent steps of the episode, [E]."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Evaluation:
    """The finished agents of an evaluation."""

    initializations: tuple[str, ...]
    """Names, the baseline first where there is one."""
    games: tuple[str, ...]
    seeds: int
    """Agents that each initialization gets in each game; fewer are finished while it goes on."""
    agent_steps: int
    """Budget of each agent."""
    curves: tuple[LearningCurve, ...]
    """Of finished agents, in the order of initializations, games and seeds."""

    @property
    def complete(self) -> bool:
        """Whether all agents are finished."""
        return len(self.curves) == len(self.initializations) * len(self.games) * self.seeds

    def of(self, initialization: str, game: str) -> Sequence[LearningCurve]:
        """Return the finished agents of an initialization in a game, in the order of seeds."""
        return [
            curve
            for curve in self.curves
            if (curve.initialization, curve.game) == (initialization, game)
        ]
