"""B environments of one game from its name and a seed; random play, and what is seen of it."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from leap_rl.envs.atari.envs import AtariEnvs
from leap_rl.envs.atari.games import find_mode
from leap_rl.envs.atari.settings import AtariSettings
from leap_rl.envs.replayed import ReplayedEnvs
from leap_rl.envs.small.catch import CatchEnvs
from leap_rl.envs.vector import GameVector, VectorStep
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


def play(games: GameVector, agent_steps: int, *, seed: int = 0) -> list[VectorStep]:
    """Play with random actions; environment i's do not depend on B."""
    generators = [np.random.default_rng((seed, index)) for index in range(games.num_envs)]
    return [
        games.step(np.array([rng.integers(games.num_actions) for rng in generators]))
        for _ in range(agent_steps)
    ]


def bits(steps: list[VectorStep], num_envs: int | None = None) -> list[object]:
    """Everything in the steps, of the first environments or of all."""
    seen: list[object] = []
    for step in steps:
        arrays = (step.observations, step.rewards, step.terminated, step.truncated, step.life_lost)
        last = sorted(step.last_observations.items())
        ended = [(i, one.tobytes()) for i, one in last if num_envs is None or i < num_envs]
        seen.append([*(array[:num_envs].tobytes() for array in arrays), ended])
    return seen


def exact_resize(pooled: NDArray[np.uint8]) -> NDArray[np.float64]:
    """Average over areas in floating point, from the definition: [H, W, C] to [84, 84, C]."""

    def weights(source: int) -> NDArray[np.float64]:
        fine = np.kron(np.eye(84), np.full(source, 1 / source))  # [84, 84·source]
        return fine.reshape(84, source, 84).sum(axis=2)

    rows = np.tensordot(weights(pooled.shape[0]), pooled.astype(float), axes=1)
    return np.einsum("iwc,jw->ijc", rows, weights(160))
