"""Somebody's own environments, as `tests.envs.own_games:Walk-v0`; importing this registers them."""

from __future__ import annotations

import random
from typing import Any

import gymnasium
import numpy as np
from gymnasium.spaces import Box, Dict, Discrete, Space, Tuple

MODULE = "tests.envs.own_games"
WALK = f"{MODULE}:Walk-v0"

SPACES: dict[str, Space[Any]] = {
    "vector": Box(-np.inf, np.inf, (4,), np.float64),
    "pixels": Box(0, 255, (24, 20, 3), np.uint8),
    "gray": Box(0, 255, (24, 20), np.uint8),
    "stack": Box(0, 255, (4, 24, 20), np.uint8),
    "planes": Box(0, 1, (10, 8, 5), np.bool_),
    "bits": Box(0, 1, (6,), np.bool_),
    "table": Box(-1, 1, (3, 2), np.float32),
    "numbers": Discrete(7, start=-2),
    "floats": Box(0, 1, (24, 20, 3), np.float32),
    "pair": Tuple((Discrete(2), Discrete(2))),
    "named": Dict({"a": Discrete(2)}),
}


class Walk(gymnasium.Env[Any, Any]):
    """Walks up and down by chance; every number tells where it is from.

    A vector is (draw, position, agent steps, last action); a reward is position · draw. The last
    observations of episodes are told apart by their third number.
    """

    def __init__(
        self,
        *,
        sees: str = "vector",
        terminates: int = 0,
        truncates: int = 0,
        first_action: int = 0,
        leaks: bool = False,
        wild: bool = False,
        continuous: bool = False,
        breaks: int = 0,
    ) -> None:
        self.observation_space = SPACES[sees]
        self.action_space = Box(-2, 4, (1,)) if continuous else Discrete(3, start=first_action)
        self.sees, self.leaks, self.wild = sees, leaks, wild
        self.continuous, self.breaks = continuous, breaks
        self.first_action = first_action
        self.ends = (terminates, truncates)
        self.total = 0  # over all episodes
        self.buffer = np.zeros(4)

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.position = self.total if self.leaks else 0
        self.count, self.action = 0, 0
        return self._see(), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        assert self.action_space.contains(action)
        assert not self.count or self.count not in self.ends, "this episode is over"
        if self.breaks and self.total >= self.breaks - 1:
            raise OSError("gone")
        self.action = float(action[0]) if self.continuous else action - self.first_action
        self.position += self.action - 1
        self.count += 1
        self.total += 1
        seen = self._see()
        terminated, truncated = (self.count == end for end in self.ends)
        return seen, self.position * self.drawn, terminated, truncated, {}

    def _see(self) -> Any:
        self.drawn = random.random() if self.wild else float(self.np_random.random())
        if self.sees == "numbers":
            return self.position % 7 - 2
        space = self.observation_space
        if space.dtype == np.bool_:
            return self.np_random.random(space.shape or ()) > 0.5
        if self.sees != "vector":
            return np.full(space.shape or (), self.count % 200).astype(space.dtype)
        # As some do, in memory that is used again.
        self.buffer[:] = (self.drawn, self.position, self.count, self.action)
        return self.buffer


class Aim(gymnasium.Env[Any, Any]):
    """Shows a point and pays for how near the next action comes to it; five times an episode."""

    observation_space = Box(-1, 1, (2,), np.float32)
    action_space = Box(-3, 3, (2,), np.float32)

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.count = 0
        return self._see(), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        reward = -float(np.abs(action - self.aim).sum())
        self.count += 1
        return self._see(), reward, self.count == 5, False, {}

    def _see(self) -> Any:
        self.aim = self.np_random.uniform(-1, 1, 2).astype(np.float32)
        return self.aim


gymnasium.register("Walk-v0", entry_point=Walk)
gymnasium.register("Aim-v0", entry_point=Aim)
