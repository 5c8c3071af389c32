from __future__ import annotations

import re

import gymnasium
import numpy as np
import pytest

from leap_rl.envs.games import check_repeats, common_shape, make_one
from tests.envs.own_games import WALK


def test_games_of_one_shape_have_it() -> None:
    assert common_shape(("CartPole-v1", "leap_rl/CartPole-v1"), pad="refuse") == (4,)


def test_shapes_are_told_or_padded_to_the_largest() -> None:
    games = ("CartPole-v1", "Acrobot-v1", "MountainCar-v0")
    message = "CartPole-v1 [4] of numbers, Acrobot-v1 [6] of numbers, MountainCar-v0 [2] of numbers"
    with pytest.raises(ValueError, match=r"pad = refuse: .*" + re.escape(message)):
        common_shape(games, pad="refuse")
    assert common_shape(games, pad="zeros") == (6,)
    planes = tuple(f"MinAtar/{name}-v1" for name in ("Breakout", "Seaquest", "Freeway"))
    assert common_shape(planes, pad="zeros") == (10, 10, 10)
    assert common_shape(planes, pad="refuse", palette=True) == (10, 10, 3)


def test_a_shape_that_is_asked_for() -> None:
    assert common_shape(("CartPole-v1",), pad="zeros", wanted=(6,)) == (6,)
    with pytest.raises(ValueError, match=r"pad = refuse: .* the encoder's input is \[6\]"):
        common_shape(("CartPole-v1",), pad="refuse", wanted=(6,))
    with pytest.raises(ValueError, match=r"observation_shape = \[3\]: 'CartPole-v1' has"):
        common_shape(("CartPole-v1",), pad="zeros", wanted=(3,))


@pytest.mark.parametrize("other", ["pixels", "bits", "numbers"])
def test_kinds_do_not_mix(other: str) -> None:
    games = ("CartPole-v1", f"{WALK}@sees={other}")
    with pytest.raises(ValueError, match=r"CartPole-v1 \[4\] of numbers, .*; take games of one"):
        common_shape(games, pad="zeros")


@pytest.mark.parametrize("game", ["CartPole-v1", "MinAtar/Seaquest-v1", WALK])
def test_games_that_repeat_themselves_pass(game: str) -> None:
    check_repeats(game, remake=False)
    check_repeats(game, remake=True)


def test_a_game_that_fails_is_named() -> None:
    with pytest.raises(ValueError, match=r"@breaks=true' failed when it was tried \(OSError: gone"):
        check_repeats(f"{WALK}@breaks=true", remake=False)


def test_games_that_do_not_are_told_and_why() -> None:
    with pytest.raises(ValueError, match=r"reset leaves something .*gymnasium\.remake = true"):
        check_repeats(f"{WALK}@leaks=true", remake=False)
    check_repeats(f"{WALK}@leaks=true", remake=True)
    for remake in (False, True):
        with pytest.raises(ValueError, match=r"does not repeat itself: the same seed"):
            check_repeats(f"{WALK}@wild=true", remake=remake)


def episode(env: gymnasium.Env[object, object], moves: list[int]) -> list[list[float]]:
    seen = [env.reset(seed=5)[0]]
    seen += [env.step(move)[0] for move in moves]
    return np.array(seen).tolist()  # type: ignore[no-any-return]


MOVES = [1, 0, 0, 1, 0, 1, 1, 0]


def test_without_arguments_it_is_gymnasiums() -> None:
    ours, theirs = make_one("leap_rl/CartPole-v1"), gymnasium.make("CartPole-v1")
    assert episode(ours, MOVES) == episode(theirs, MOVES)
    assert ours.spec.max_episode_steps == theirs.spec.max_episode_steps == 500


def test_swapped_actions_change_places() -> None:
    plain, swapped = make_one("leap_rl/CartPole-v1"), make_one("leap_rl/CartPole-v1@swapped=true")
    assert episode(plain, MOVES) == episode(swapped, [1 - move for move in MOVES])
    assert episode(plain, MOVES) != episode(swapped, MOVES)


def test_every_argument_changes_what_happens() -> None:
    plain = episode(make_one("leap_rl/CartPole-v1"), MOVES)
    for argument in ("gravity=20.0", "masscart=3.0", "masspole=0.5", "length=1.0", "force_mag=5.0"):
        other = episode(make_one(f"leap_rl/CartPole-v1@{argument}"), MOVES)
        assert other[0] == plain[0]
        assert other != plain, argument


def test_derived_constants_follow() -> None:
    env = make_one("leap_rl/CartPole-v1@masspole=0.4,length=2.0,masscart=3.0").unwrapped
    assert env.total_mass == 3.4
    assert env.polemass_length == 0.8
