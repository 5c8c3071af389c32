from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from numpy.typing import NDArray

from leap_rl.envs.small.catch import BALLS, CELL, GRID, PADDLE, CatchEnvs
from leap_rl.envs.vector import EpisodeAccounting, EpisodeEnd
from leap_rl.tasks.suites import CATCH_GAMES
from tests.envs.vectors import make_catch, play

RANDOM_RETURN = -Fraction(10, 7)
STAY, LEFT, RIGHT = 0, 1, 2


def cells_of(observation: NDArray[np.uint8]) -> tuple[set[tuple[int, int]], set[tuple[int, int]]]:
    """Read a picture: the cells (row, column) of the ball and those of the paddle."""
    cells = observation.reshape(GRID, CELL, GRID, CELL, 3)
    assert (cells == cells[:, :1, :, :1]).all()  # every cell is of one color
    ball: set[tuple[int, int]] = set()
    paddle: set[tuple[int, int]] = set()
    # The colors of `catch`, and inverted.
    where = {(0, 0, 255): ball, (255, 255, 0): ball, (255, 0, 0): paddle, (0, 255, 255): paddle}
    for row in range(GRID):
        for column in range(GRID):
            color = tuple(int(level) for level in cells[row, 0, column, 0])
            where.get(color, set()).add((row, column))
    return ball, paddle


def look_and_play(observation: NDArray[np.uint8], *, mirrored: bool = False) -> int:
    """Perfect play from the picture alone: bring the paddle's middle under the ball."""
    ball, paddle = cells_of(observation)
    ((_, target),) = ball
    columns = sorted(column for _, column in paddle)
    if target in columns or len(columns) < PADDLE:  # caught just now
        return STAY
    return LEFT if (target < columns[0]) != mirrored else RIGHT


def episodes_of(name: str, policy: str, *, num_envs: int, agent_steps: int) -> list[EpisodeEnd]:
    games = make_catch(name, num_envs=num_envs, seed=0)
    accounting = EpisodeAccounting(num_envs)
    rng = np.random.default_rng(0)
    observations, episodes = games.reset(), []
    for count in range(1, agent_steps + 1):
        if policy == "random":
            actions = rng.integers(3, size=num_envs)
        else:
            mirrored = name == "catch_mirrored"
            actions = np.array([look_and_play(o, mirrored=mirrored) for o in observations])
        step = games.step(actions)
        episodes += accounting.record(step, count * num_envs)
        observations = step.observations
    return episodes


@pytest.mark.parametrize("name", CATCH_GAMES)
def test_perfect_play_from_the_picture_catches_every_ball(name: str) -> None:
    episodes = episodes_of(name, "perfect", num_envs=4, agent_steps=120)
    assert [(e.episode_return, e.length) for e in episodes] == [(10.0, 60)] * 8


def test_random_play_has_the_documented_mean_return() -> None:
    returns = [
        e.episode_return for e in episodes_of("catch", "random", num_envs=200, agent_steps=60)
    ]
    # A ball's reward is ±1 with P(+1) = 3/7: variance 1 − (1/7)² = 48/49.
    standard_error = (BALLS * 48 / 49 / len(returns)) ** 0.5
    assert abs(np.mean(returns) - float(RANDOM_RETURN)) < 4 * standard_error
    assert standard_error < 0.25


def test_a_ball_by_hand() -> None:
    envs = CatchEnvs("catch", num_envs=1)
    envs.reset(seed=0)
    envs.ball_columns[:], envs.paddle_columns[:] = 5, 1
    seen = []
    for action in (RIGHT, RIGHT, LEFT, STAY, RIGHT):
        observations, rewards, terminated, truncated, info = envs.step(np.array([action]))
        seen.append(cells_of(observations[0]))
        assert (rewards.tolist(), terminated.tolist(), truncated.tolist()) == (
            [0.0],
            [False],
            [False],
        )
        assert info == {}
    paddles = [min(column for _, column in paddle) for _, paddle in seen]
    assert paddles == [2, 3, 2, 2, 3]
    assert [ball for ball, _ in seen] == [{(row, 5)} for row in range(1, 6)]
    assert seen[-1][1] == {(6, 3), (6, 4), (6, 5)}
    observations, rewards, *_ = envs.step(np.array([STAY]))
    assert rewards.tolist() == [1.0]
    ((row, _),) = cells_of(observations[0])[0]
    assert row == 0  # the next ball


def test_the_paddle_stops_at_both_walls() -> None:
    envs = CatchEnvs("catch", num_envs=2)
    envs.reset(seed=0)
    for _ in range(GRID):
        envs.step(np.array([LEFT, RIGHT]))
    assert envs.paddle_columns.tolist() == [0, GRID - PADDLE]


def test_an_episode_terminates_with_its_last_picture_and_the_next_begins() -> None:
    envs = CatchEnvs("catch", num_envs=2)
    envs.reset(seed=0)
    for _ in range(59):
        _, _, terminated, _, info = envs.step(np.array([STAY, STAY]))
        assert not terminated.any()
        assert info == {}
    column = int(envs.ball_columns[0])
    observations, _, terminated, _, info = envs.step(np.array([STAY, STAY]))
    assert terminated.all()
    assert info["_final_obs"].all()
    assert cells_of(info["final_obs"][0])[0] == {(6, column)}
    assert {row for row, _ in cells_of(observations[0])[0]} == {0}


def test_the_variants_differ_as_they_should() -> None:
    variants = [make_catch(f"catch{name}", num_envs=3, seed=0) for name in ("", "_up", "_dark")]
    for games in variants:
        games.reset()
    plain, up, dark = (np.stack([step.observations for step in play(g, 130)]) for g in variants)
    rows = plain.reshape(-1, 3, GRID, CELL, 84, 3)
    assert np.array_equal(up.reshape(rows.shape), rows[:, :, ::-1])
    assert np.array_equal(dark, 255 - plain)
    plain_env, mirrored_env = (CatchEnvs(n, num_envs=1) for n in CATCH_GAMES[:2])
    for action, places in ((LEFT, (1, 3)), (RIGHT, (3, 1)), (STAY, (2, 2))):
        for envs, place in zip((plain_env, mirrored_env), places, strict=True):
            envs.reset(seed=0)
            envs.paddle_columns[:] = 2
            envs.step(np.array([action]))
            assert envs.paddle_columns.tolist() == [place]


def test_a_reset_without_a_seed_continues_with_the_generators() -> None:
    envs = CatchEnvs("catch", num_envs=16)
    first, _ = envs.reset(seed=0)
    second, _ = envs.reset()
    assert not np.array_equal(first, second)
