"""stable-baselines3's A2C with the paper's network and settings, in its best arrangement.

That is over ale-py's AtariVectorEnv, one thread and one agent a process: twice as fast as over
stable-baselines3's own DummyVecEnv, and faster than one process with two threads.
"""

from __future__ import annotations

import argparse
from typing import Any

import gymnasium
import numpy as np
import torch
from atari_vector_env_step import make_envs
from common import Step, measure, options, report
from sb3_updates import updates_of
from stable_baselines3 import A2C
from stable_baselines3.common.torch_layers import BaseFeaturesExtractor
from stable_baselines3.common.vec_env import VecEnv
from torch import Tensor, nn

UNROLL = 5


class Mnih2013(BaseFeaturesExtractor):
    """The encoder of Mnih et al. 2013, on RGB."""

    def __init__(self, observation_space: gymnasium.Space[Any]) -> None:
        super().__init__(observation_space, features_dim=256)
        self.layers = nn.Sequential(
            nn.Conv2d(3, 16, 8, stride=4),
            nn.ReLU(),
            nn.Conv2d(16, 32, 4, stride=2),
            nn.ReLU(),
            nn.Flatten(),
            nn.Linear(32 * 9 * 9, 256),
            nn.ReLU(),
        )

    def forward(self, observations: Tensor) -> Tensor:
        """Return features, [B, 256], of observations scaled to 0..1, [B, 3, 84, 84]."""
        return self.layers(observations)


class AtariVecEnv(VecEnv):
    """AtariVectorEnv as stable-baselines3 wants it."""

    def __init__(self, game: str, *, envs: int, seed: int) -> None:
        self._envs = make_envs(game, envs=envs)
        self._first_seeds = np.arange(envs) + 1000 * seed
        space = gymnasium.spaces.Box(0, 255, (3, 84, 84), np.uint8)
        super().__init__(envs, space, self._envs.single_action_space)

    def reset(self) -> np.ndarray:
        """Start all episodes."""
        return _channels_first(self._envs.reset(seed=self._first_seeds)[0])

    def step_async(self, actions: np.ndarray) -> None:
        """Begin a step."""
        self._actions = actions

    def step_wait(self) -> tuple[np.ndarray, np.ndarray, np.ndarray, list[dict[str, Any]]]:
        """Finish it."""
        observations, rewards, terminated, truncated, info = self._envs.step(self._actions)
        infos: list[dict[str, Any]] = [{} for _ in range(self.num_envs)]
        done = terminated | truncated
        for index in np.flatnonzero(done):
            infos[index] = {
                "terminal_observation": _channels_first(info["final_obs"][index : index + 1])[0],
                "TimeLimit.truncated": bool(truncated[index] and not terminated[index]),
            }
        clipped = np.clip(rewards, -5.0, 5.0).astype(np.float32)
        return _channels_first(observations), clipped, done, infos

    def close(self) -> None:
        """Nothing is to be done."""

    def env_is_wrapped(self, wrapper_class: Any, indices: Any = None) -> list[bool]:
        """Nothing is wrapped."""
        return [False] * self.num_envs

    def env_method(self, method_name: str, *args: Any, indices: Any = None, **kwargs: Any) -> Any:
        """There is none to call."""
        raise NotImplementedError(method_name)

    def get_attr(self, attr_name: str, indices: Any = None) -> list[Any]:
        """Return an attribute of each environment."""
        return [getattr(self, attr_name, None)] * self.num_envs

    def set_attr(self, attr_name: str, value: Any, indices: Any = None) -> None:
        """There is none to set."""
        raise NotImplementedError(attr_name)


def _channels_first(observations: np.ndarray) -> np.ndarray:
    return observations[:, 0].transpose(0, 3, 1, 2)


def make_step(given: argparse.Namespace, index: int) -> Step:
    """Return an update: a rollout and a step of the optimizer, as `A2C.learn` does them."""
    torch.set_num_threads(1)
    model = A2C(
        "CnnPolicy",
        AtariVecEnv(given.game, envs=given.envs, seed=index),
        learning_rate=1e-4,
        n_steps=UNROLL,
        gamma=0.99,
        ent_coef=0.01,
        vf_coef=0.5,
        max_grad_norm=1e9,
        seed=index,
        device="cpu",
        policy_kwargs={
            "features_extractor_class": Mnih2013,
            "net_arch": [],
            "optimizer_class": torch.optim.RMSprop,
            "optimizer_kwargs": {"alpha": 0.99, "eps": 1e-4},
        },
    )
    return updates_of(model)


if __name__ == "__main__":
    given = options(__doc__ or "").parse_args()
    packages = ["stable-baselines3", "torch", "ale-py", "gymnasium", "numpy"]
    report("sb3_a2c", given, measure(make_step, given), packages)
