"""An environment that sleeps: `benchmarks.system.sleeping:Sleep-v0@step_s=0.02`."""

from __future__ import annotations

import time
from typing import Any

import gymnasium
import numpy as np
from gymnasium.spaces import Box, Discrete

EPISODE = 20
"""Agent steps of an episode."""


class Sleep(gymnasium.Env[Any, Any]):
    """Takes no processor time for a step, but as much time as it is told; rewards action 1."""

    observation_space = Box(-1.0, 1.0, (4,), np.float32)
    action_space = Discrete(2)

    def __init__(self, *, step_s: float) -> None:
        self.step_s = step_s

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.made = 0
        return self._see(), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        time.sleep(self.step_s)
        self.made += 1
        return self._see(), float(action), self.made == EPISODE, False, {}

    def _see(self) -> Any:
        return self.np_random.uniform(-1, 1, 4).astype(np.float32)


gymnasium.register("Sleep-v0", f"{__name__}:Sleep")
