"""Returns and lengths of episodes, counted from the steps that the agent learns from.

In `AutoresetMode.SAME_STEP` Gymnasium's own statistics (1.2.2) miss a step of each episode but the
first.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from leap_rl.envs.vector import VectorStep


class EpisodeEnd(NamedTuple):
    """An episode that ended."""

    agent_steps: int
    """Agent steps of the whole task, over all its environments, when it ended."""
    episode_return: float
    """Sum of the raw rewards."""
    length: int
    """Agent steps that the episode took."""


class EpisodeAccounting:
    """Sums up the running episode of each of B environments, in float64."""

    returns: NDArray[np.float64]
    """[B]: of the running episodes."""
    lengths: NDArray[np.int64]
    """[B]: of the running episodes, in agent steps."""

    def __init__(self, num_envs: int) -> None:
        self.returns = np.zeros(num_envs, dtype=np.float64)
        self.lengths = np.zeros(num_envs, dtype=np.int64)

    def record(self, step: VectorStep, agent_steps: int) -> list[EpisodeEnd]:
        """Add one step of all B environments; return the episodes that ended, in their order.

        `agent_steps` is the task's count, this step's B included.
        """
        self.returns += step.rewards
        self.lengths += 1
        ended = np.flatnonzero(step.terminated | step.truncated)
        episodes = [
            EpisodeEnd(agent_steps, float(self.returns[index]), int(self.lengths[index]))
            for index in ended
        ]
        self.returns[ended] = 0.0
        self.lengths[ended] = 0
        return episodes
