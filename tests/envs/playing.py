"""Random play, and all that is seen of it as bytes."""

from __future__ import annotations

import numpy as np

from leap_rl.envs.vector import GameVector, VectorStep


def play(games: GameVector, agent_steps: int, *, seed: int = 0) -> list[VectorStep]:
    """Play with random actions; environment i's do not depend on B."""
    generators = [np.random.default_rng((seed, index)) for index in range(games.num_envs)]
    return [
        games.step(np.array([rng.integers(games.num_actions) for rng in generators]))
        for _ in range(agent_steps)
    ]


def bits(steps: list[VectorStep], num_envs: int | None = None) -> list[object]:
    """Everything in the steps, of the first environments or of all."""
    return [
        (
            *(
                array[:num_envs].tobytes()
                for array in (
                    *(step.observations, step.rewards, step.terminated, step.truncated),
                    step.life_lost,
                )
            ),
            {
                index: last.tobytes()
                for index, last in step.last_observations.items()
                if num_envs is None or index < num_envs
            },
        )
        for step in steps
    ]
