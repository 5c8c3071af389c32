"""RLlib's PPO with the paper's encoder, one environment runner a core.

Settings that favor it: large fragments and batches, one epoch. (With an unroll of 5 and an update
after every 160 agent steps it spends most of its time between processes.)
"""

from __future__ import annotations

import argparse
import logging
import time
from typing import Any

import ale_py
import gymnasium
import ray
from common import Rate, camel_case, options, report
from gymnasium.wrappers import AtariPreprocessing
from ray.rllib.algorithms.ppo import PPOConfig
from ray.rllib.core.rl_module.default_model_config import DefaultModelConfig
from ray.tune.registry import register_env

FRAGMENT = 64
WARM_UP_ITERATIONS = 2


def make_env(config: Any) -> gymnasium.Env[Any, Any]:
    """Make one environment: 84 x 84 RGB, 4 frames an agent step."""
    gymnasium.register_envs(ale_py)
    env = gymnasium.make(f"ALE/{config['game']}-v5", frameskip=1, repeat_action_probability=0.0)
    return AtariPreprocessing(
        env, noop_max=30, frame_skip=4, screen_size=84, grayscale_obs=False, scale_obs=True
    )


def measure(given: argparse.Namespace) -> float:
    """Return agent steps a second of the whole algorithm."""
    ray.init(
        address="local",
        num_cpus=given.processes + 1,
        include_dashboard=False,
        logging_level=logging.ERROR,
        log_to_driver=False,
    )
    register_env("game", make_env)
    envs = given.envs * given.processes
    config = (
        PPOConfig()
        .environment("game", env_config={"game": camel_case(given.game)})
        .env_runners(
            num_env_runners=given.processes,
            num_envs_per_env_runner=given.envs,
            rollout_fragment_length=FRAGMENT,
            sample_timeout_s=600.0,  # the default of a minute is too short for a busy machine
        )
        .training(
            lr=1e-4,
            gamma=0.99,
            entropy_coeff=0.01,
            train_batch_size_per_learner=FRAGMENT * envs,
            minibatch_size=256,
            num_epochs=1,
        )
        .rl_module(
            model_config=DefaultModelConfig(
                conv_filters=[[16, 8, 4], [32, 4, 2]],
                conv_activation="relu",
                head_fcnet_hiddens=[256],
                head_fcnet_activation="relu",
                vf_share_layers=True,
            )
        )
        .learners(num_learners=0)
    )
    algorithm = config.build_algo()
    try:
        for _ in range(WARM_UP_ITERATIONS):
            algorithm.train()
        before = steps = _lifetime_steps(algorithm.train())
        started_s = time.perf_counter()
        while time.perf_counter() - started_s < given.seconds or steps == before:
            steps = _lifetime_steps(algorithm.train())
        return (steps - before) / (time.perf_counter() - started_s)
    finally:
        algorithm.stop()
        ray.shutdown()


def _lifetime_steps(result: dict[str, Any]) -> float:
    return float(result["env_runners"]["num_env_steps_sampled_lifetime"])


if __name__ == "__main__":
    given = options(__doc__ or "").parse_args()
    report("rllib_ppo", given, Rate(measure(given)), ["ray", "torch", "ale-py", "gymnasium"])
