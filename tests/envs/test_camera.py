from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

from leap_rl.envs.atari.envs import RecordedAtari, frames_per_s
from leap_rl.envs.atari.settings import AtariSettings
from leap_rl.envs.vector import GameVector
from tests.envs.resizing import exact_resize
from tests.envs.vectors import make_atari

SETTINGS = AtariSettings(max_frames=40, sticky=0.25)


def actions(count: int) -> NDArray[np.int64]:
    return np.random.default_rng(0).integers(3, size=(count, 1))


@pytest.mark.parametrize("game", ["qbert", "air_raid@mode=2"])
def test_what_is_recorded_is_what_is_played(game: str) -> None:
    """Through the ends of episodes, with all frames, their rewards, and nothing else."""
    plain = make_atari(game, num_envs=1, seed=3, settings=SETTINGS)
    camera = RecordedAtari(game, settings=SETTINGS)
    games = GameVector(camera, seed=3)
    assert np.array_equal(games.reset(), plain.reset())
    ends = 0
    for action in actions(25):
        expected, step = plain.step(action), games.step(action)
        assert np.array_equal(step.observations, expected.observations)
        assert step.rewards == expected.rewards
        shots = camera.shots
        assert len(shots) == 4
        assert sum(shot.reward for shot in shots) == step.rewards[0]
        assert shots[0].screen.shape == (camera._emulators[0].height, 160, 3)
        seen = step.last_observations.get(0, step.observations[0])
        if not step.terminated[0]:
            pooled = np.maximum(shots[2].screen, shots[3].screen)
            assert np.abs(exact_resize(pooled) - seen).max() <= 0.51
        ends += int(step.truncated[0])
    assert ends == 2


def test_each_frame_is_its_own() -> None:
    camera = RecordedAtari("breakout", settings=AtariSettings(noop_max=0))
    games = GameVector(camera, seed=0)
    games.reset()
    for _ in range(10):
        games.step(np.array([1]))
    screens = [shot.screen.tobytes() for shot in camera.shots]
    assert len(set(screens)) > 1  # the ball flies


def test_frame_rates_are_the_televisions() -> None:
    assert frames_per_s("pong@mode=1") == 60
    assert frames_per_s("air_raid@mode=3") == 50
