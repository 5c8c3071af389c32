"""What a pool of Gymnasium environments has in common, found by making each of them."""

from __future__ import annotations

from functools import lru_cache
from typing import Literal

import numpy as np
from gymnasium.spaces import Box

from leap_rl.envs.games import make_games, random_actions
from leap_rl.envs.replayed import check_fits, episode_seed

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
        games: ids, see `games.make_games`, as for `palette`.
        pad: what happens to smaller ones.
        wanted: a shape that is asked for; by default the largest, dimension by dimension.

    Raises:
        ValueError: they have none, or a game cannot be made; the message names games and shapes.
    """
    spaces = {game: _space_of(game, palette) for game in games}
    shapes = {space.shape for space in spaces.values()}
    told = ", ".join(f"{game} {_told(space)}" for game, space in spaces.items())
    if len({(len(space.shape), space.dtype) for space in spaces.values()}) > 1:
        raise ValueError(
            f"task.games: an encoder takes images or vectors, of numbers or of 0 to 255, and the "
            f"games' observations are {told}; take games of one kind"
        )
    shape = wanted or tuple(max(sizes) for sizes in zip(*shapes, strict=True))
    for game, space in spaces.items():
        check_fits(game, space, shape)
    if pad == "refuse" and shapes != {shape}:
        raise ValueError(
            f"task.gymnasium.pad = refuse: the games' observations are {told}, and the encoder's "
            f"input is {list(shape)}; task.gymnasium.pad = zeros fills up with zeros; or take "
            "games of one shape"
        )
    return shape


def has_continuous_actions(game: str) -> bool:
    """Return whether a Gymnasium environment's actions are continuous."""
    games = make_games(game, count=1)
    games.close()
    return games.continuous


def check_repeats(game: str, *, remake: bool, palette: bool = False) -> None:
    """Raise ValueError for an environment that does not repeat itself, as far as a trial shows.

    It plays a short episode of random actions twice, the second time after another one.
    """
    try:
        fresh = _episode(game, remake=remake, palette=palette, after_another=False)
        used = _episode(game, remake=remake, palette=palette, after_another=True)
    except Exception as error:  # whatever somebody's own environment may raise
        reason = f"{type(error).__name__}: {error}"
        raise ValueError(f"task.games: {game!r} failed when it was tried ({reason})") from error
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
        "that a run of it could be neither repeated nor resumed; draw from self.np_random, "
        "which reset(seed=...) seeds, alone"
    )


def _episode(game: str, *, remake: bool, palette: bool, after_another: bool) -> list[object]:
    """Play a short episode; return all that was seen of it."""
    games = make_games(game, count=1, remake=remake, palette=palette)
    shape = (1, *games.observation_space.shape)
    drawn = np.random.default_rng(0)
    actions = [random_actions(games, 1, drawn) for _ in range(TRIED_AGENT_STEPS)]
    seen: list[object] = []
    for episode in (1, 0) if after_another else (0,):
        games.begin(np.array([0]), np.array([episode_seed(0, 0, episode)]))
        observation = np.zeros(shape, dtype=games.observation_space.dtype)
        games.show(observation)
        seen = [observation.tobytes()]
        for action in actions:
            parts = games.step(action)
            games.show(observation)
            seen.append((observation.tobytes(), *(part.item() for part in parts)))
            if parts[1] or parts[2]:
                break
    games.close()
    return seen


def _space_of(game: str, palette: bool) -> Box:
    games = make_games(game, count=1, palette=palette)
    games.close()
    return games.observation_space


def _told(space: Box) -> str:
    return f"{list(space.shape)}{'' if space.dtype == np.uint8 else ' of numbers'}"
