from __future__ import annotations

import gymnasium
import numpy as np

from leap_rl.envs.games import make_one


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
