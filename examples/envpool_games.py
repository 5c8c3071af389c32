"""EnvPool's environments as games, each stepped as one vector: `envpool_games:Pool-v0@task=...`.

Further pairs are options of `envpool.make`: `@task=CoinrunEasy-v0,num_levels=1,start_level=3`.

    pip install envpool
    PYTHONPATH=examples leap-rl learn --trust_imports --task.kind gymnasium \
        --task.games '["envpool_games:Pool-v0@task=MiniGrid-Empty-8x8-v0"]' --task.num_envs 64 \
        --task.agent_steps 320000

EnvPool takes its seed where it is made, and not in `reset`, so `reset` makes it here. Of
observations that are dictionaries, such as MiniGrid's, agents get the image, its numbers spread
over those of a uint8.
"""

from __future__ import annotations

from typing import Any

import envpool
import gymnasium
from gymnasium.spaces import Dict
from gymnasium.vector import AutoresetMode, VectorEnv


class Pool(VectorEnv[Any, Any, Any]):
    """B environments of an EnvPool task on one thread, for a trainer has one core."""

    metadata = {"autoreset_mode": AutoresetMode.NEXT_STEP}  # noqa: RUF012

    def __init__(self, num_envs: int, task: str, **options: Any) -> None:
        self.num_envs, self.task, self.options = num_envs, task, options
        self.pool = self.make(seed=0)
        space = self.pool.single_observation_space
        self.shows_image = isinstance(space, Dict)
        self.single_observation_space = space["image"] if self.shows_image else space
        self.single_action_space = self.pool.single_action_space

    def make(self, seed: int) -> Any:
        """Make EnvPool's own vector."""
        vector = {"num_envs": self.num_envs, "num_threads": 1, "seed": seed}
        return envpool.make_gymnasium(self.task, **vector, **self.options)

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        """Begin an episode in each environment; with a seed, the first of those it stands for."""
        if seed is not None:
            self.pool.close()
            self.pool = self.make(seed)
        observations, _ = self.pool.reset()
        return self.shown(observations), {}

    def step(self, actions: Any) -> tuple[Any, Any, Any, Any, dict[str, Any]]:
        """Take an action in each environment; where an episode has ended, begin the next."""
        observations, rewards, terminated, truncated, _ = self.pool.step(actions)
        return self.shown(observations), rewards, terminated, truncated, {}

    def shown(self, observations: Any) -> Any:
        """Return what agents see, [B, ...]."""
        return observations["image"] * 25 if self.shows_image else observations

    def close_extras(self, **kwargs: Any) -> None:
        """Close EnvPool's vector."""
        self.pool.close()


gymnasium.register("Pool-v0", vector_entry_point=Pool)
