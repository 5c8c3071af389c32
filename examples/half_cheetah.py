"""HalfCheetahs that are to run at a speed: `half_cheetah:Run-v0@speed=1.5`.

    pip install 'gymnasium[mujoco]'
    PYTHONPATH=examples leap-rl learn --trust_imports --task.kind gymnasium \
        --task.games '["half_cheetah:Run-v0@speed=1.5"]' --task.agent_steps 200000

Finn et al. 2017 (MAML), section 5.3: an episode has 200 agent steps, and the reward is minus the
distance between the speed and the one that is wanted, less a cost of control. Here the wanted speed
is added, so that standing still has a reward of 0: values are learned from 0 on.
"""

from __future__ import annotations

import logging
from typing import Any

import gymnasium
import mujoco

# For each environment MuJoCo says on the terminal and in a file that the model is of an old form.
mujoco.set_mju_user_warning(logging.getLogger("mujoco").info)


class TargetSpeed(gymnasium.Wrapper[Any, Any, Any, Any]):
    """A cheetah that is rewarded for running at `speed` m/s; backwards if it is negative."""

    def __init__(self, env: gymnasium.Env[Any, Any], speed: float) -> None:
        super().__init__(env)
        self.speed = speed

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        observation, _, terminated, truncated, info = super().step(action)
        reward = abs(self.speed) - abs(info["x_velocity"] - self.speed) + info["reward_ctrl"]
        return observation, float(reward), terminated, truncated, info


def make(speed: float, **arguments: Any) -> TargetSpeed:
    """Make a cheetah; ValueError for a speed that is no number."""
    if type(speed) not in (int, float):
        raise ValueError(f"speed = {speed}: must be a number, in m/s")
    return TargetSpeed(gymnasium.make("HalfCheetah-v5", **arguments), speed)


gymnasium.register("Run-v0", entry_point=make, max_episode_steps=200)
