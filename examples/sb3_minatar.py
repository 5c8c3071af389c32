"""PPO of stable-baselines3 from an encoder that leap_rl meta-trained, on a game of MinAtar.

pip install stable-baselines3
python examples/sb3_minatar.py --agent_steps 200000
"""

from __future__ import annotations

import argparse
from typing import Any

import torch
from stable_baselines3 import PPO
from stable_baselines3.common.env_util import make_vec_env
from stable_baselines3.common.torch_layers import BaseFeaturesExtractor

from leap_rl import pretrained
from leap_rl.envs.single import GameEnv
from leap_rl.networks.encoders import random_encoder


class LeapFeatures(BaseFeaturesExtractor):
    """The encoder of an initialization, as stable-baselines3 takes one."""

    def __init__(self, observation_space: Any, initialization: str) -> None:
        encoder = random_start() if initialization == "random" else pretrained.load(initialization)
        if len(set(observation_space.shape)) == 1:  # which the library leaves [H, W, C]
            raise ValueError(f"{observation_space.shape}: cannot tell channels from rows")
        super().__init__(observation_space, features_dim=encoder.features)
        self.encoder = encoder

    def forward(self, observations: torch.Tensor) -> torch.Tensor:
        """Return features [N, F] of images [N, C, H, W] in 0..255, as this library shows them."""
        return self.encoder(observations.permute(0, 2, 3, 1).to(torch.uint8))


def random_start() -> torch.nn.Module:
    """Return a random encoder from a stream of its own, seeded by torch's global one's seed.

    The global stream then draws the same heads for either start.
    """
    generator = torch.Generator().manual_seed(torch.initial_seed())
    return random_encoder("minatar", (10, 10, 3), generator, gain=2**0.5)


def make_model(initialization: str, game: str, *, num_envs: int = 8, **given: Any) -> PPO:
    """Return PPO, whose policy and values share the encoder."""
    envs = make_vec_env(lambda: GameEnv(game, palette=True), n_envs=num_envs)
    policy = {
        "features_extractor_class": LeapFeatures,
        "features_extractor_kwargs": {"initialization": initialization},
        "net_arch": [],  # linear heads, as our agent has
        "normalize_images": False,  # the encoder scales them itself
        "ortho_init": False,  # which would draw the encoder's weights again
    }
    return PPO("CnnPolicy", envs, policy_kwargs=policy, device="cpu", **given)


def options() -> argparse.ArgumentParser:
    """Return the options."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--initialization", default="minatar-leap", help="or random")
    parser.add_argument("--game", default="MinAtar/Breakout-v1")
    parser.add_argument("--agent_steps", type=int, default=200_000)
    parser.add_argument("--seed", type=int, default=0)
    return parser


def main(words: list[str] | None = None) -> None:
    """Learn the game."""
    given = options().parse_args(words)
    model = make_model(given.initialization, given.game, seed=given.seed, verbose=1)
    model.learn(given.agent_steps)


if __name__ == "__main__":
    main()
