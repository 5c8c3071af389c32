"""PPO, APPO or IMPALA of RLlib from an encoder that leap_rl meta-trained, on a game of MinAtar.

python examples/rllib_minatar.py --algorithm appo --initialization pretrained:minatar-leap
"""

from __future__ import annotations

import argparse

import ray
from ray.rllib.algorithms.appo import APPOConfig
from ray.rllib.algorithms.impala import IMPALAConfig
from ray.rllib.algorithms.ppo import PPOConfig
from ray.rllib.core.rl_module.rl_module import RLModuleSpec

from leap_rl.learners.rllib import LeapEncoderModule, LeapEnv

CONFIGS = {"ppo": PPOConfig, "appo": APPOConfig, "impala": IMPALAConfig}


def options() -> argparse.ArgumentParser:
    """Return the options."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--algorithm", choices=list(CONFIGS), default="ppo")
    parser.add_argument("--initialization", help="pretrained:NAME or a folder; none for random")
    parser.add_argument("--game", default="MinAtar/Breakout-v1")
    parser.add_argument("--iterations", type=int, default=50)
    parser.add_argument("--batch", type=int, default=2048, help="agent steps in each")
    parser.add_argument("--env_runners", type=int, default=1, help="processes that play")
    parser.add_argument("--seed", type=int, default=0)
    return parser


def main(words: list[str] | None = None) -> None:
    """Train, and print the mean return after each iteration."""
    given = options().parse_args(words)
    start = {"initialization": given.initialization} if given.initialization else {}
    config = (
        CONFIGS[given.algorithm]()
        .environment(LeapEnv, env_config={"game": given.game, "palette": True})
        .env_runners(
            num_env_runners=given.env_runners,
            num_envs_per_env_runner=16,
            rollout_fragment_length=16,
        )
        .learners(num_learners=0)  # in this process
        .training(lr=3e-4, train_batch_size_per_learner=given.batch)
        .rl_module(
            rl_module_spec=RLModuleSpec(
                module_class=LeapEncoderModule,
                model_config={"initial_weights": "he", **(start or {"encoder": "minatar"})},
            )
        )
        .debugging(seed=given.seed)
    )
    if given.algorithm == "ppo":
        config.training(minibatch_size=256, num_epochs=4, entropy_coeff=0.01)
    ray.init(include_dashboard=False)
    algorithm = config.build_algo()
    try:
        for iteration in range(given.iterations):
            runners = algorithm.train()["env_runners"]
            mean = runners.get("episode_return_mean", float("nan"))
            steps = runners.get("num_env_steps_sampled_lifetime", 0)
            print(f"{iteration + 1}: {steps:,.0f} agent steps, mean return {mean:.2f}", flush=True)
    finally:
        algorithm.stop()
        ray.shutdown()


if __name__ == "__main__":
    main()
