"""What a pool of Gymnasium environments has in common, found by making each of them."""

from __future__ import annotations

from functools import lru_cache
from typing import Literal

import numpy as np

from leap_rl.envs.gymnasium.episode_runner import EpisodeRunner, check_fits
from leap_rl.envs.gymnasium.spaces import ObservationAdapter

Pad = Literal["refuse", "zeros"]
"""What happens to observations that are smaller than others of the pool."""

TRIED_AGENT_STEPS = 100
"""Agent steps of each episode by which a game is tried."""


@lru_cache(maxsize=8)
def common_shape(
    games: tuple[str, ...],
    *,
    pad: Pad,
    palette: bool = False,
    wanted: tuple[int, ...] | None = None,
) -> tuple[int, ...]:
    """Return the shape that observations of all games of a pool have, or are padded to.

    Args:
        games: as `gymnasium_envs.make_one` takes them.
        pad: what happens to smaller ones.
        palette: see `make_one`.
        wanted: a shape that is asked for; by default the largest, dimension by dimension.

    Raises:
        ValueError: they have none, or a game cannot be made; the message names games and shapes.
    """
    adapters = {game: _adapter(game, palette) for game in games}
    shapes = {adapter.shape for adapter in adapters.values()}
    told = ", ".join(f"{game} {_told(adapter)}" for game, adapter in adapters.items())
    if len({(len(adapter.shape), adapter.scaled) for adapter in adapters.values()}) > 1:
        raise ValueError(
            f"task.games: an encoder takes images or vectors, of numbers or of 0 to 255, and the "
            f"games' observations are {told}; take games of one kind"
        )
    largest = tuple(max(sizes) for sizes in zip(*shapes, strict=True))
    shape = largest if wanted is None else wanted
    if wanted is not None:
        for game, adapter in adapters.items():
            check_fits(game, adapter, wanted)
    if pad == "refuse" and shapes != {shape}:
        raise ValueError(
            f"task.gymnasium.pad = refuse: the games' observations are {told}, and the encoder's "
            f"input is {list(shape)}; task.gymnasium.pad = zeros fills up with zeros; or take "
            "games of one shape"
        )
    return shape


def check_repeats(game: str, *, remake: bool, palette: bool = False) -> None:
    """Refuse an environment that does not repeat itself, as far as one can see by trying it.

    It plays a short episode of random actions twice, the second time after another one.

    Raises:
        ValueError: it went elsewhere, or it cannot be made.
    """
    fresh = _episode(game, remake=remake, palette=palette, after_another=False)
    used = _episode(game, remake=remake, palette=palette, after_another=True)
    if fresh == used:
        return
    if not remake and fresh == _episode(game, remake=remake, palette=palette, after_another=False):
        raise ValueError(
            f"task.games: {game!r} starts an episode otherwise than in a new environment, though "
            "the seed is the same: reset leaves something of the last episode behind; "
            "task.gymnasium.remake = true makes a new environment for each"
        )
    raise ValueError(
        f"task.games: {game!r} does not repeat itself: the same seed and actions led elsewhere, so "
        "that a run of it could be neither repeated nor gone on with; draw from self.np_random, "
        "which reset(seed=...) seeds, alone"
    )


def _episode(game: str, *, remake: bool, palette: bool, after_another: bool) -> list[object]:
    """Play a short episode; returns all that there was to see of it."""
    runner = EpisodeRunner(game, index=0, remake=remake, palette=palette)
    generator = np.random.default_rng(0)
    actions = generator.integers(len(runner.actions), size=TRIED_AGENT_STEPS).tolist()
    if after_another:
        runner.begin(episode=1)
        for action in actions:
            *_, terminated, truncated = runner.step(action)
            if terminated or truncated:
                break
    seen: list[object] = [runner.begin(episode=0).tobytes()]
    for action in actions:
        observation, *rest = runner.step(action)
        seen.append((observation.tobytes(), *rest))
        if rest[1] or rest[2]:
            break
    runner.close()
    return seen


def _adapter(game: str, palette: bool) -> ObservationAdapter:
    runner = EpisodeRunner(game, index=0, remake=False, palette=palette)
    runner.close()
    return runner.adapter


def _told(adapter: ObservationAdapter) -> str:
    return f"{list(adapter.shape)}{'' if adapter.scaled else ' of numbers'}"
