"""Environments of several games in one vector."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from leap_rl.envs.atari.envs import AtariEnvs
from leap_rl.envs.atari.settings import AtariSettings
from leap_rl.envs.gymnasium_config import GymnasiumConfig
from leap_rl.envs.mixed import MixedEnvs
from leap_rl.envs.small.catch import CatchEnvs
from leap_rl.envs.vector import GameVector
from leap_rl.envs.workers import WorkerEnvs
from leap_rl.tasks.config import TaskConfig
from leap_rl.tasks.options import MIXED
from leap_rl.tasks.suite import GameSuite
from tests.envs.own_games import WALK
from tests.envs.vectors import bits, play

WALKS = [f"{WALK}@terminates=7", f"{WALK}@truncates=5", WALK]
MIXES = {
    "gymnasium": TaskConfig(
        kind="gymnasium",
        games=WALKS,
        gymnasium=GymnasiumConfig(observation_shape=[4]),
        mix_games=True,
        num_envs=7,
        agent_steps=35,
    ),
    "atari": TaskConfig(
        games=["pong", "qbert@difficulty=1", "pong@mode=1"],  # states of other lengths
        mix_games=True,
        num_envs=4,
        agent_steps=20,
    ),
    "catch": TaskConfig(kind="catch", games="all", mix_games=True, num_envs=5, agent_steps=25),
    "minatar": TaskConfig(
        kind="gymnasium",
        games=["MinAtar/Breakout-v0", "MinAtar/Asterix-v0"],
        gymnasium=GymnasiumConfig(minatar="palette"),
        mix_games=True,
        num_envs=3,
        agent_steps=15,
    ),
    "continuous": TaskConfig(
        kind="gymnasium",
        games=["Pendulum-v1", "Pendulum-v1@g=5.0"],
        mix_games=True,
        num_envs=3,
        agent_steps=15,
    ),
}


def make(task: TaskConfig, *, seed: int = 3, processes: int = 1, game: str = MIXED) -> GameVector:
    assert isinstance(task.suite, GameSuite)
    return task.suite.make_envs(task, game, seed=seed, processes=processes)


def begun(kind: str) -> GameVector:
    games = make(MIXES[kind])
    games.reset()
    return games


def play_some(games: GameVector, agent_steps: int) -> list[object]:
    if not games.continuous:
        return bits(play(games, agent_steps))
    drawn = np.random.default_rng(0)
    shape = (games.num_envs, games.num_actions)
    return bits(
        [games.step(drawn.uniform(-1, 1, shape).astype(np.float32)) for _ in range(agent_steps)]
    )


def test_environment_i_plays_game_i_modulo_their_number() -> None:
    steps = play(begun("gymnasium"), 14)
    terminated = np.array([step.terminated for step in steps])
    truncated = np.array([step.truncated for step in steps])
    for place in range(7):
        ends = np.flatnonzero(terminated[:, place]), np.flatnonzero(truncated[:, place])
        expected: tuple[list[int], list[int]] = [([6, 13], []), ([], [4, 9]), ([], [])][place % 3]
        assert tuple(map(list, ends)) == expected
    for number in (4, 9):
        assert set(steps[number].last_observations) == {1, 4}
        for place, last in steps[number].last_observations.items():
            # A walk's observation is (draw, position, agent steps, action), see `own_games.Walk`.
            assert last[2] == 5
            assert steps[number].observations[place][2] == 0
    # Each environment has a stream of its own: games of equal rules do not play in step.
    draws = steps[0].observations[:, 0]
    assert len(set(draws.tolist())) == 7


@pytest.mark.parametrize("kind", MIXES)
def test_a_mix_is_restored_to_the_same_bits(kind: str, tmp_path: Path) -> None:
    games = begun(kind)
    play_some(games, 12)
    save_file(games.state(), tmp_path / "state.safetensors")
    expected = play_some(games, 20)
    state = load_file(tmp_path / "state.safetensors")
    again = make(MIXES[kind], seed=99)
    assert np.array_equal(again.restore(state), state["observations"])
    assert play_some(again, 20) == expected
    assert play_some(begun(kind), 20) != expected
    games.close()
    again.close()


@pytest.mark.parametrize(("kind", "processes"), [("gymnasium", 2), ("gymnasium", 4), ("atari", 3)])
def test_processes_change_no_bit(kind: str, processes: int) -> None:
    """Slices of two environments are shorter than the list of games."""
    one, several = make(MIXES[kind]), make(MIXES[kind], processes=processes)
    assert isinstance(several._envs, WorkerEnvs)
    assert np.array_equal(one.reset(), several.reset())
    assert play_some(one, 12) == play_some(several, 12)
    state, other = one.state(), several.state()
    assert state.keys() == other.keys()
    assert all(np.array_equal(state[name], other[name]) for name in state)
    expected = play_some(one, 15)
    play_some(several, 2)
    assert np.array_equal(several.restore(state), state["observations"])
    assert play_some(several, 15) == expected
    several.close()


def test_what_an_environment_plays_does_not_depend_on_their_number() -> None:
    wide = make(MIXES["gymnasium"])
    narrow = make(replace(MIXES["gymnasium"], num_envs=4, agent_steps=20))
    assert np.array_equal(wide.reset()[:4], narrow.reset())
    assert bits(play(wide, 20), 4) == bits(play(narrow, 20))


def test_a_state_of_other_games_is_refused() -> None:
    def vector(*names: str) -> GameVector:
        makers = [
            lambda *, num_envs, first, name=name: CatchEnvs(name, num_envs=num_envs)
            for name in names
        ]
        return GameVector(MixedEnvs(makers, num_envs=4), seed=0)

    games, swapped = vector("catch", "catch_up"), vector("catch_up", "catch")
    games.reset()
    state = games.state()
    with pytest.raises(ValueError, match=r"state\.identities"):
        swapped.restore(state)
    plain = make(
        TaskConfig(kind="catch", games=["catch"], num_envs=4, agent_steps=20), game="catch"
    )
    plain.reset()
    with pytest.raises(ValueError, match="identities"):
        games.restore(plain.state())
    games.restore(state)


def test_life_losses_reach_the_learner() -> None:
    settings = AtariSettings(life_loss_ends=True)
    makers = [
        partial(AtariEnvs, game, settings=settings) for game in ("breakout", "breakout@mode=12")
    ]
    games = GameVector(MixedEnvs(makers, num_envs=2), seed=0)
    games.reset()
    lost = sum(games.step(np.array([1, 1])).life_lost.astype(int) for _ in range(400))
    assert isinstance(lost, np.ndarray)
    assert lost.tolist()[0] > 0
    games.close()
