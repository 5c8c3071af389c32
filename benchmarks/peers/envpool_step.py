"""EnvPool, merely stepped: random actions, 84 x 84 RGB, nobody looks or learns."""

from __future__ import annotations

import argparse

import envpool
import numpy as np
from common import Step, camel_case, measure, options, report


def make_step(given: argparse.Namespace, index: int) -> Step:
    """Return a step of all environments."""
    envs = envpool.make(
        f"{camel_case(given.game)}-v5",
        env_type="gymnasium",
        num_envs=given.envs,
        num_threads=given.threads,
        seed=index,
        img_height=84,
        img_width=84,
        gray_scale=False,
        stack_num=1,
        frame_skip=4,
        noop_max=30,
        episodic_life=False,
        reward_clip=False,
        use_fire_reset=False,
        repeat_action_probability=0.0,
        full_action_space=False,
        max_episode_steps=27_000,
    )
    random = np.random.default_rng(index)
    actions = int(envs.action_space.n)
    observations, _ = envs.reset()
    assert observations.shape == (given.envs, 3, 84, 84), observations.shape

    def step() -> int:
        envs.step(random.integers(actions, size=given.envs).astype(np.int32))
        return given.envs

    return step


if __name__ == "__main__":
    parser = options(__doc__ or "")
    parser.add_argument("--threads", type=int, default=1, help="of each process")
    given = parser.parse_args()
    report("envpool_step", given, measure(make_step, given), ["envpool", "numpy"])
