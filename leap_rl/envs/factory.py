"""Makes the environments of one Gymnasium id; MinAtar's are compiled loops."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from leap_rl.envs.gymnasium.envs import GymnasiumEnvs
from leap_rl.envs.gymnasium.episode_runner import MINATAR, EpisodeRunner, check_fits
from leap_rl.envs.gymnasium.ids import parse_game
from leap_rl.envs.gymnasium.replay import observation_space, pattern
from leap_rl.envs.vector import GameVector
from leap_rl.envs.workers import WorkerEnvs


def make_gymnasium(
    game: str,
    *,
    num_envs: int,
    seed: int,
    shape: tuple[int, ...],
    remake: bool = False,
    palette: bool = False,
    processes: int = 1,
) -> GameVector:
    """Make B environments of one Gymnasium id.

    Args:
        game: as `make_one` takes it.
        num_envs: B.
        seed: the sole source of randomness.
        shape: of an observation, (H, W, C) or (length,); a smaller one gets zeros at its ends.
        remake: make an environment again for each episode.
        palette: see `make_one`.
        processes: how many step the environments; changes no bit. 1 is this one.

    Raises:
        ValueError: there is no such game, it has spaces that no agent here can use, its
            observations are larger than `shape`, or `processes` does not lie in 1..B.
    """
    kind = envs_class(game)
    slices = partial(kind, game, shape=shape, remake=remake, palette=palette)
    if processes == 1:
        return GameVector(slices(num_envs=num_envs), seed=seed)
    one = EpisodeRunner(game, index=0, remake=remake, palette=palette)
    one.close()
    check_fits(game, one.adapter, shape)
    space = observation_space(one.adapter, shape)
    envs = WorkerEnvs(
        slices,
        num_envs=num_envs,
        processes=processes,
        observation_space=space,
        pattern=pattern(num_envs, space),
        tells_lives=False,
    )
    return GameVector(envs, seed=seed)


def envs_class(game: str) -> Callable[..., Any]:
    """Return what plays a game: MinAtar's have compiled loops."""
    if game.startswith(MINATAR):
        # Imported here: others need not wait for the loops to be loaded.
        from leap_rl.envs.minatar.games import options_of
        from leap_rl.envs.minatar.vector import MinAtarEnvs

        if options_of(parse_game(game)) is not None:
            return MinAtarEnvs
    return GymnasiumEnvs
