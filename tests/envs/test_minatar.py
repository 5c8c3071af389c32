from __future__ import annotations

import numpy as np
import pytest

from leap_rl.envs.gymnasium_envs import make_gymnasium
from leap_rl.envs.gymnasium_stage import make_one
from leap_rl.envs.minatar import COLORS

GAMES = ("Asterix", "Breakout", "Freeway", "Seaquest", "SpaceInvaders")


@pytest.mark.parametrize("game", GAMES)
def test_a_picture_shows_each_thing_in_its_color(game: str) -> None:
    planes, picture = (make_one(f"MinAtar/{game}-v1", palette=palette) for palette in (0, 1))
    channels = planes.unwrapped.game.env.channels
    assert channels.keys() <= COLORS.keys()
    black, seen_things = 0, set()
    generator = np.random.default_rng(0)
    states, image = planes.reset(seed=1)[0], picture.reset(seed=1)[0]
    for _ in range(200):
        assert image.shape == (10, 10, 3)
        for row, column in np.ndindex(10, 10):
            things = [name for name in COLORS if name in channels]
            here = [name for name in things if states[row, column, channels[name]]]
            expected = COLORS[here[-1]] if here else (0, 0, 0)
            assert tuple(image[row, column].tolist()) == expected
            black += not here
            seen_things.update(here)
        action = int(generator.integers(planes.action_space.n))
        states, _, over, *_ = planes.step(action)
        image = picture.step(action)[0]
        if over:
            states, image = planes.reset(seed=2)[0], picture.reset(seed=2)[0]
    assert black
    assert len(seen_things) >= 3


def test_the_player_has_one_color_and_what_is_to_be_avoided_another() -> None:
    players = {COLORS[name] for name in ("player", "paddle", "chicken", "sub_front", "cannon")}
    foes = {COLORS[name] for name in ("enemy", "car", "alien", "enemy_fish")}
    assert len(players) == len(foes) == 1
    assert players != foes


def test_an_episode_remembers_nothing_of_the_one_before() -> None:
    """MinAtar's own would repeat the last episode's last action, one time in ten."""
    env = make_one("MinAtar/Breakout-v1")
    for reset, left in ((env.env.reset, 3), (env.reset, 0)):  # 3: to the right
        env.reset(seed=0)
        for _ in range(3):
            env.step(2)
        reset(seed=1)
        assert env.unwrapped.game.last_action == left


@pytest.mark.parametrize("game", GAMES)
def test_frozen_it_goes_on_to_the_same_bits(game: str) -> None:
    shape = make_one(f"MinAtar/{game}-v1").observation_space.shape
    games, again = (
        make_gymnasium(f"MinAtar/{game}-v1", num_envs=3, seed=seed, shape=shape) for seed in (0, 1)
    )
    games.reset()
    moves = np.random.default_rng(0).integers(games.num_actions, size=(260, 3))
    for move in moves[:200]:
        games.step(move)
    again.restore(games.state())
    for move in moves[200:]:
        one, other = games.step(move), again.step(move)
        assert np.array_equal(one.observations, other.observations)
        assert np.array_equal(one.rewards, other.rewards)
        assert set(np.unique(one.observations)) <= {0, 255}
