"""Returns and lengths of episodes, counted from the steps that the agent learns from.

In `AutoresetMode.SAME_STEP` Gymnasium's own statistics (1.2.2) miss a step of each episode but the
first.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from leap_rl.envs.vector import VectorStep


@dataclass(frozen=True, kw_only=True, slots=True)
class Episode:
    """One episode that has ended."""

    environment: int
    """Which of the B environments played it."""
    agent_steps: int
    """The task's agent steps, counted over all its environments, when the episode ended."""
    raw_return: float
    """The undiscounted sum of the game's own rewards."""
    length: int
    """In agent steps."""


class EpisodeAccounting:
    """Sums up the running episode of each of B environments, in float64."""

    returns: NDArray[np.float64]
    """[B]: of the running episodes."""
    lengths: NDArray[np.int64]
    """[B]: of the running episodes, in agent steps."""

    def __init__(self, num_envs: int) -> None:
        self.returns = np.zeros(num_envs, dtype=np.float64)
        self.lengths = np.zeros(num_envs, dtype=np.int64)

    def record(self, step: VectorStep, agent_steps: int) -> list[Episode]:
        """Add one step of all B environments.

        Args:
            step: what `GameVector.step` returned.
            agent_steps: the task's count, this step's B included.

        Returns:
            The episodes that ended in this step, by environment.
        """
        self.returns += step.rewards
        self.lengths += 1
        ended = np.flatnonzero(step.terminated | step.truncated)
        episodes = [
            Episode(
                environment=int(index),
                agent_steps=agent_steps,
                raw_return=float(self.returns[index]),
                length=int(self.lengths[index]),
            )
            for index in ended
        ]
        self.returns[ended] = 0.0
        self.lengths[ended] = 0
        return episodes
