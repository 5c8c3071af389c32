"""What every kind of environment promises, over several ends of episodes."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from leap_rl.envs.atari.settings import AtariSettings
from leap_rl.envs.vector import GameVector
from tests.envs.own_games import WALK
from tests.envs.vectors import bits, make_atari, make_catch, make_gymnasium, play

Make = Callable[[int, int], GameVector]
"""Makes so many environments from a seed."""


def atari(num_envs: int, seed: int) -> GameVector:
    # Starts are shared between the environments, and sticky actions draw in every frame.
    settings = AtariSettings(max_frames=80, sticky=0.25, noop_max=2)
    return make_atari("space_invaders", num_envs=num_envs, seed=seed, settings=settings)


def walk(num_envs: int, seed: int) -> GameVector:
    game = f"{WALK}@terminates=7,truncates=5"
    return make_gymnasium(game, num_envs=num_envs, seed=seed, shape=(4,))


def catch(num_envs: int, seed: int) -> GameVector:
    return make_catch("catch", num_envs=num_envs, seed=seed)


every_kind = pytest.mark.parametrize("make", [atari, walk, catch])
AGENT_STEPS = 70


@every_kind
def test_the_seed_decides_every_bit(make: Make) -> None:
    games = [make(2, seed) for seed in (1, 1, 2)]
    first, again, _ = (each.reset() for each in games)
    assert np.array_equal(first, again)
    steps, steps_again, steps_other = (play(each, AGENT_STEPS) for each in games)
    assert bits(steps) == bits(steps_again) != bits(steps_other)
    assert sum((step.truncated | step.terminated).sum() for step in steps) >= 2


@every_kind
def test_an_environment_does_not_depend_on_how_many_there_are(make: Make) -> None:
    few, many = make(2, 3), make(5, 3)
    assert np.array_equal(few.reset(), many.reset()[:2])
    assert bits(play(few, AGENT_STEPS)) == bits(play(many, AGENT_STEPS), 2)


@every_kind
def test_arrays_are_the_callers_to_keep(make: Make) -> None:
    games = make(2, 0)
    kept = [games.reset()]
    copies = [kept[0].copy()]
    for count in range(AGENT_STEPS):
        (step,) = play(games, 1, seed=count)
        kept += [step.observations, *step.last_observations.values()]
        copies += [step.observations.copy(), *(o.copy() for o in step.last_observations.values())]
    assert all(map(np.array_equal, kept, copies))


@every_kind
def test_reading_the_state_changes_nothing_and_gives_copies(make: Make) -> None:
    calm, watched = make(2, 0), make(2, 0)
    calm.reset(), watched.reset()
    for count in range(AGENT_STEPS):
        for array in watched.state().values():
            array[...] = 0
        assert bits(play(watched, 1, seed=count)) == bits(play(calm, 1, seed=count))
