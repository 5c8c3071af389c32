"""What the snapshots of Gymnasium environments hold: seeds and actions, to be played again."""

from __future__ import annotations

import numpy as np
from gymnasium.spaces import Box

from leap_rl.envs.gymnasium.spaces import ObservationAdapter
from leap_rl.envs.state import State


def identity_of(game: str, *, shape: tuple[int, ...], remake: bool, palette: bool) -> str:
    """Return the text that says which environments a state is of."""
    return f"gymnasium {game} {list(shape)} palette={palette} remake={remake}"


def does_not_repeat(game: str, count: int) -> ValueError:
    """Return what is wrong where an episode's actions, so many, led elsewhere."""
    return ValueError(
        f"task.games: {game!r} does not repeat itself: the seed and the {count} actions of an "
        "episode led elsewhere when its snapshot was taken. An episode must be a function of both: "
        "nothing drawn but from the seed of reset, and no other version of the environment"
    )


def observation_space(adapter: ObservationAdapter, shape: tuple[int, ...]) -> Box:
    """Return the space of observations as the agent sees them, of a shape."""
    if adapter.scaled:
        return Box(0, 255, shape, np.uint8)
    return Box(-np.inf, np.inf, shape, np.float32)


def pattern(num_envs: int, space: Box) -> State:
    """Return arrays like those of a state."""
    whole = np.zeros(num_envs, dtype=np.int64)
    return {
        "seeds": whole,
        "episodes": whole,
        "actions": np.zeros(0, dtype=np.uint8),
        "actions_sizes": whole,
        "returns": np.zeros(num_envs, dtype=np.float64),
        "observations": np.zeros((num_envs, *space.shape), dtype=space.dtype),
    }
