"""An environment of one's own: a corridor whose goal lies left or right. It knows no learner.

With this folder on PYTHONPATH:

    leap-rl learn --task.kind gymnasium --task.games '["corridor:Corridor-v0@length=7"]' \\
        --task.agent_steps 8000 --task.num_envs 8 --trust_imports
"""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
from gymnasium.spaces import Box, Discrete
from numpy.typing import NDArray


class Corridor(gymnasium.Env[NDArray[np.float32], np.int64]):
    """Starts anywhere; +1 at the goal, which ends the episode, and −0.01 for each other step.

    Args:
        length: Cells.
        mirrored: Whether the goal is the first cell, and not the last.
    """

    def __init__(self, length: int = 9, mirrored: bool = False) -> None:
        self.length, self.goal = length, 0 if mirrored else length - 1
        self.observation_space = Box(0.0, 1.0, (length,), np.float32)
        self.action_space = Discrete(2)

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[NDArray[np.float32], dict[str, Any]]:
        """Begin an episode in a cell drawn at random, never the goal."""
        super().reset(seed=seed)
        cells = [cell for cell in range(self.length) if cell != self.goal]
        self.cell = int(self.np_random.choice(cells))
        return self._seen(), {}

    def step(
        self, action: np.int64
    ) -> tuple[NDArray[np.float32], float, bool, bool, dict[str, Any]]:
        """Go left (0) or right (1)."""
        self.cell = min(max(self.cell + (1 if action else -1), 0), self.length - 1)
        there = self.cell == self.goal
        return self._seen(), 1.0 if there else -0.01, there, False, {}

    def _seen(self) -> NDArray[np.float32]:
        return np.eye(self.length, dtype=np.float32)[self.cell]


gymnasium.register("Corridor-v0", entry_point=Corridor, max_episode_steps=50)
