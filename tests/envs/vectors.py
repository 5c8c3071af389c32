"""B environments of one game from its name and a seed, without the options of a run."""

from __future__ import annotations

from functools import partial
from typing import Any

from leap_rl.envs.atari.envs import AtariEnvs
from leap_rl.envs.atari.games import find_mode
from leap_rl.envs.atari.settings import AtariSettings
from leap_rl.envs.replayed import ReplayedEnvs
from leap_rl.envs.small.catch import CatchEnvs
from leap_rl.envs.vector import GameVector
from leap_rl.envs.workers import make_vector


def make_atari(
    game: str,
    *,
    num_envs: int,
    seed: int,
    settings: AtariSettings | None = None,
    processes: int = 1,
) -> GameVector:
    make = partial(AtariEnvs, find_mode(game).name, settings=settings or AtariSettings())
    return make_vector(make, num_envs=num_envs, seed=seed, processes=processes)


def make_gymnasium(
    game: str, *, num_envs: int, seed: int, processes: int = 1, **options: Any
) -> GameVector:
    make = partial(ReplayedEnvs, game, **options)
    return make_vector(make, num_envs=num_envs, seed=seed, processes=processes)


def make_catch(name: str, *, num_envs: int, seed: int) -> GameVector:
    return GameVector(CatchEnvs(name, num_envs=num_envs), seed=seed)
