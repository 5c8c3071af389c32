"""ale-py's AtariVectorEnv, merely stepped: random actions, 84 x 84 RGB, nobody looks or learns."""

from __future__ import annotations

import argparse

import numpy as np
from ale_py.vector_env import AtariVectorEnv
from common import Step, measure, options, report
from gymnasium.vector import AutoresetMode


def make_envs(game: str, *, envs: int, threads: int = 1) -> AtariVectorEnv:
    """Make the environments as leap_rl's paper preset has them."""
    return AtariVectorEnv(
        game,
        envs,
        num_threads=threads,
        max_num_frames_per_episode=108_000,
        repeat_action_probability=0.0,
        full_action_space=False,
        autoreset_mode=AutoresetMode.SAME_STEP,
        img_height=84,
        img_width=84,
        grayscale=False,
        stack_num=1,
        frameskip=4,
        maxpool=True,
        noop_max=30,
        episodic_life=False,
        life_loss_info=False,
        reward_clipping=False,
        use_fire_reset=False,
    )


def make_step(given: argparse.Namespace, index: int) -> Step:
    """Return a step of all environments."""
    envs = make_envs(given.game, envs=given.envs, threads=given.threads)
    random = np.random.default_rng(index)
    actions = int(envs.single_action_space.n)
    envs.reset(seed=np.arange(given.envs) + 1000 * index)

    def step() -> int:
        envs.step(random.integers(actions, size=given.envs))
        return given.envs

    return step


if __name__ == "__main__":
    parser = options(__doc__ or "")
    parser.add_argument("--threads", type=int, default=1, help="of each process")
    given = parser.parse_args()
    rate = measure(make_step, given)
    report("atari_vector_env_step", given, rate, ["ale-py", "gymnasium", "numpy"])
