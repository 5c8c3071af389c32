"""stable-baselines3's A2C on leap_rl's small games, with leap_rl's network and settings.

It runs in the project's own environment, which has the games, and to which stable-baselines3 is
added (docs/your_own_code.md).
"""

from __future__ import annotations

import argparse
from typing import Any

import torch
from common import Step, measure, options, report
from sb3_updates import updates_of
from stable_baselines3 import A2C
from stable_baselines3.common.env_util import make_vec_env
from stable_baselines3.common.torch_layers import BaseFeaturesExtractor
from torch import Tensor

from leap_rl.bench.config import ThroughputConfig
from leap_rl.envs.single import GameEnv
from leap_rl.learners.registry import make_learner
from leap_rl.networks.encoders import make_encoder


class Features(BaseFeaturesExtractor):
    """Our encoder; the library transposes images to [B, C, H, W]."""

    def __init__(self, observation_space: Any, encoder: str) -> None:
        shape = observation_space.shape
        module = make_encoder(encoder, shape if len(shape) == 1 else (*shape[1:], shape[0]))
        super().__init__(observation_space, features_dim=module.features)
        self.encoder = module

    def forward(self, observations: Tensor) -> Tensor:
        """Return features, [B, J]."""
        if observations.ndim == 4:
            observations = observations.permute(0, 2, 3, 1).to(torch.uint8)
        return self.encoder(observations)


def make_step(given: argparse.Namespace, index: int) -> Step:
    """Return an update: a rollout and a step of the optimizer, as `A2C.learn` does them."""
    torch.set_num_threads(1)
    config = ThroughputConfig(game=given.game, envs=given.envs)
    agent = make_learner(task=config.task, agent=config.agent).resolved_agent()
    model = A2C(
        "MlpPolicy" if agent.encoder == "mlp" else "CnnPolicy",
        make_vec_env(lambda: GameEnv(given.game), n_envs=given.envs, seed=index),
        learning_rate=agent.lr,
        n_steps=config.unroll,
        gamma=agent.gamma,
        ent_coef=agent.entropy_coefficient,
        vf_coef=agent.value_coefficient,
        max_grad_norm=min(agent.max_grad_norm, 1e9),
        rms_prop_eps=agent.rmsprop_eps,
        policy_kwargs={
            "features_extractor_class": Features,
            "features_extractor_kwargs": {"encoder": agent.encoder},
            "net_arch": [],
            "normalize_images": False,
        },
        seed=index,
        device="cpu",
    )
    return updates_of(model)


if __name__ == "__main__":
    given = options(__doc__ or "").parse_args()
    packages = ["stable-baselines3", "torch", "gymnasium", "numpy"]
    report("sb3_small_a2c", given, measure(make_step, given), packages)
