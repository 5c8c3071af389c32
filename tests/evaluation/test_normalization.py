from __future__ import annotations

import numpy as np
import pytest

from leap_rl.envs.atari.games import ACTION_COUNTS
from leap_rl.evaluation.normalization import RANDOM_AND_HUMAN, human_scale
from leap_rl.tasks.suites import CATCH_GAMES


def test_the_table_has_games_that_exist_and_humans_who_play_better_than_chance() -> None:
    assert set(RANDOM_AND_HUMAN) <= set(ACTION_COUNTS)
    assert all(human > random for random, human in RANDOM_AND_HUMAN.values())
    # Atari-57 less Surround, which Gym's list has not.
    assert len(RANDOM_AND_HUMAN) == 56


def test_random_play_is_0_and_the_human_1() -> None:
    scale = human_scale("breakout")
    assert scale is not None
    np.testing.assert_allclose(scale(np.array([1.7, 30.5, 59.3])), [0.0, 1.0, 2.0])
    pong = human_scale("pong")
    assert pong is not None
    assert pong(np.array([-20.7 + 35.3 / 2])) == pytest.approx(0.5)


@pytest.mark.parametrize("game", ["air_raid", *CATCH_GAMES, "CartPole-v1"])
def test_a_game_that_no_human_played_has_no_scale(game: str) -> None:
    assert human_scale(game) is None
