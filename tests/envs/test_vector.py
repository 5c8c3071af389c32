"""`GameVector` and `EpisodeAccounting` over environments whose every number tells where it is from,
and vectors that are spread over processes.

B environments. In the stub an observation is (environment, episode, agent steps into it), and a
reward is made of the same three, so any step that was left out, added or misplaced shows.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from typing import Any

import numpy as np
import pytest
from gymnasium.spaces import Box
from numpy.typing import NDArray

from leap_rl.envs.atari.settings import AtariSettings
from leap_rl.envs.vector import (
    EpisodeAccounting,
    EpisodeEnd,
    GameVector,
    RestorableEnvs,
    VectorStep,
    environment_seeds,
)
from leap_rl.envs.workers import WorkerEnvs
from tests.envs.own_games import WALK
from tests.envs.vectors import bits, make_atari, make_gymnasium, play

# How the episodes of each environment end: (agent steps, how), again and again.
Endings = list[tuple[int, str]]
ENDINGS: list[Endings] = [
    [(3, "terminated"), (1, "truncated"), (4, "terminated")],
    [(2, "truncated"), (2, "truncated")],
    [(6, "terminated"), (5, "both")],
    [(1, "terminated")],
]


def reward_of(environment: int, episode: int, position: int) -> float:
    return 1000.0 * environment + 10.0 * episode + position


class TellingEnv(RestorableEnvs):
    """Counts positions; hands out fresh arrays; final_obs is junk where no episode ended."""

    def __init__(self, endings: list[Endings]) -> None:
        super().__init__(len(endings), Box(0, 255, (3,), np.uint8), 2)
        self.endings = endings
        self.seed: int | None = None
        self.closed = False

    def _observe(self) -> NDArray[np.uint8]:
        rows = zip(range(self.num_envs), self.episodes, self.positions, strict=True)
        return np.array(list(rows), dtype=np.uint8)

    def reset(self, *, seed: Any = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        self.seed = seed
        self.episodes = [0] * self.num_envs
        self.positions = [0] * self.num_envs
        return self._observe(), {}

    def step(self, actions: Any) -> Any:
        rewards = np.zeros(self.num_envs)
        terminated = np.zeros(self.num_envs, dtype=bool)
        truncated = np.zeros(self.num_envs, dtype=bool)
        for env in range(self.num_envs):
            self.positions[env] += 1
            rewards[env] = reward_of(env, self.episodes[env], self.positions[env])
            length, how = self.endings[env][self.episodes[env] % len(self.endings[env])]
            if self.positions[env] == length:
                terminated[env] = how in ("terminated", "both")
                truncated[env] = how in ("truncated", "both")
        ended = terminated | truncated
        final = np.where(ended[:, None], self._observe(), 255).astype(np.uint8)
        for env in np.flatnonzero(ended):
            self.episodes[env] += 1
            self.positions[env] = 0
        info = {"final_obs": final, "_final_obs": ended} if ended.any() else {}
        return self._observe(), rewards, terminated, truncated, info


def played(endings: list[Endings], steps: int) -> tuple[list[VectorStep], list[EpisodeEnd]]:
    games = GameVector(TellingEnv(endings), seed=0)
    accounting = EpisodeAccounting(games.num_envs)
    games.reset()
    taken, episodes = [], []
    for count in range(1, steps + 1):
        taken.append(games.step(np.zeros(games.num_envs, dtype=np.int64)))
        episodes += accounting.record(taken[-1], count * games.num_envs)
    return taken, episodes


def expected_episodes(endings: list[Endings], steps: int) -> list[EpisodeEnd]:
    """What must come out, computed from the endings alone."""
    episodes = []
    for env, ending in enumerate(endings):
        start, number = 0, 0
        while (end := start + ending[number % len(ending)][0]) <= steps:
            length = end - start
            total = sum(reward_of(env, number, position) for position in range(1, length + 1))
            episodes.append(
                EpisodeEnd(agent_steps=end * len(endings), episode_return=total, length=length)
            )
            start, number = end, number + 1
    return sorted(episodes, key=lambda episode: episode.agent_steps)  # then by environment


def test_returns_and_lengths_are_those_of_the_episodes_played() -> None:
    _, episodes = played(ENDINGS, 40)
    assert episodes == expected_episodes(ENDINGS, 40)
    assert len(episodes) == 15 + 20 + 7 + 40


def test_after_an_end_comes_the_new_episodes_first_observation() -> None:
    steps, _ = played(ENDINGS, 40)
    for step in steps:
        ended = step.terminated | step.truncated
        assert (step.observations[ended, 2] == 0).all()
        assert (step.observations[~ended, 2] > 0).all()
        assert (step.observations[:, 0] == range(len(ENDINGS))).all()


def test_last_observations_are_the_true_last_ones_of_truncated_episodes() -> None:
    steps, _ = played(ENDINGS, 6)
    found = [
        {index: observation.tolist() for index, observation in step.last_observations.items()}
        for step in steps
    ]
    # (environment, episode, position); environment 2's first episode terminates at 6.
    assert found == [
        {},
        {1: [1, 0, 2]},
        {},
        {0: [0, 1, 1], 1: [1, 1, 2]},
        {},
        {1: [1, 2, 2]},
    ]
    for step in steps:
        assert sorted(step.last_observations) == np.flatnonzero(step.truncated).tolist()


def test_last_observations_are_copies() -> None:
    games = GameVector(TellingEnv(ENDINGS), seed=0)
    games.reset()
    kept: list[Any] = []
    step_of_env = games._envs.step
    games._envs.step = lambda actions: kept.append(step_of_env(actions)) or kept[-1]  # type: ignore[method-assign]
    games.step(np.zeros(4, dtype=np.int64))
    step = games.step(np.zeros(4, dtype=np.int64))
    kept[-1][4]["final_obs"][:] = 99
    assert step.last_observations[1].tolist() == [1, 0, 2]


def test_terminated_and_truncated_at_once_is_terminated() -> None:
    steps, episodes = played([[(2, "both")]], 2)
    assert steps[1].terminated.tolist() == [True]
    assert steps[1].truncated.tolist() == [False]
    assert steps[1].last_observations == {}
    assert len(episodes) == 1


def test_the_seed_goes_to_the_environments_and_close_closes_them() -> None:
    envs = TellingEnv(ENDINGS)
    games = GameVector(envs, seed=7)
    games.reset()
    assert envs.seed == 7
    games.close()
    assert envs.closed


@pytest.mark.parametrize("action", [-1, 2])
def test_an_action_that_the_game_lacks_is_refused(action: int) -> None:
    games = GameVector(TellingEnv(ENDINGS), seed=0)
    games.reset()
    with pytest.raises(ValueError, match=r"must lie in 0\.\.1"):
        games.step(np.array([0, action, 0, 0]))


def test_sums_are_exact_where_float32_would_not_be() -> None:
    accounting = EpisodeAccounting(1)

    def step(reward: float, *, terminated: bool) -> VectorStep:
        return VectorStep(
            observations=np.zeros((1, 1), dtype=np.uint8),
            rewards=np.array([reward], dtype=np.float32),
            terminated=np.array([terminated]),
            truncated=np.array([False]),
            last_observations={},
            life_lost=np.array([False]),
        )

    accounting.record(step(2.0**24, terminated=False), 1)
    accounting.record(step(1.0, terminated=False), 2)
    assert accounting.returns.tolist() == [2.0**24 + 1]
    assert accounting.lengths.tolist() == [2]
    (episode,) = accounting.record(step(1.0, terminated=True), 3)
    assert episode.episode_return == 2.0**24 + 2
    assert accounting.returns.tolist() == [0.0]


def test_an_environments_seed_depends_on_seed_and_index_alone() -> None:
    def words(seed: int, num_envs: int) -> list[list[int]]:
        return [s.generate_state(4).tolist() for s in environment_seeds(seed, num_envs)]

    assert words(5, 2) == words(5, 8)[:2]
    # No diagonal: environment 1 of one seed is not environment 0 of the next.
    everyone = [tuple(word) for seed in range(8) for word in words(seed, 8)]
    assert len(set(everyone)) == 64


SETTINGS = AtariSettings(max_frames=40, sticky=0.25, life_loss_ends=True)


def test_processes_change_no_bit_and_their_states_are_the_same() -> None:
    # qbert's states are of uneven length; 3 environments do not divide by 2.
    one = make_atari("qbert@difficulty=1", num_envs=3, seed=0, settings=SETTINGS)
    two = make_atari("qbert@difficulty=1", num_envs=3, seed=0, settings=SETTINGS, processes=2)
    assert isinstance(two._envs, WorkerEnvs)
    assert np.array_equal(one.reset(), two.reset())
    assert bits(play(one, 25)) == bits(play(two, 25))
    state, state_of_two = one.state(), two.state()
    assert state.keys() == state_of_two.keys()
    assert all(np.array_equal(array, state_of_two[name]) for name, array in state.items())
    expected = bits(play(one, 15))
    play(two, 3)
    assert np.array_equal(two.restore(state), state["observations"])
    assert bits(play(two, 15)) == expected
    two.close()


def workers_of(games: GameVector) -> list[Any]:
    assert isinstance(games._envs, WorkerEnvs)
    return games._envs._workers


@pytest.mark.parametrize("processes", [1, 2])
def test_a_game_that_plays_otherwise_is_told_alike_from_processes(processes: int) -> None:
    games = make_gymnasium(f"{WALK}@wild=true", num_envs=2, seed=0, shape=(4,), processes=processes)
    games.reset()
    play(games, 3)
    with pytest.raises(ValueError, match=r"task\.games: "):
        games.restore(games.state())
    games.close()


def test_a_workers_error_and_its_death_are_told_and_close_ends_all() -> None:
    games = make_gymnasium("CartPole-v1", num_envs=2, seed=0, shape=(4,), processes=2)
    games.reset()
    workers = workers_of(games)
    assert all(worker.is_alive() for worker in workers)
    other = make_gymnasium("Acrobot-v1", num_envs=2, seed=0, shape=(6,))
    other.reset()
    with pytest.raises(ValueError, match=r"state\.identity"):
        games._envs.restore(other.state())
    games._envs.step(np.array([0, 0]))  # nothing has happened to them
    for number in (signal.SIGINT, signal.SIGTERM):
        os.kill(workers[0].pid, number)
        games._envs.step(np.array([0, 0]))
    with pytest.raises(RuntimeError, match=r"(?s)environment process 1 failed:.*AssertionError"):
        games._envs.step(np.array([0, 99]))
    os.kill(workers[0].pid, signal.SIGKILL)
    with pytest.raises(ChildProcessError, match=r"environment process 0 \(exit code -9\)"):
        games._envs.step(np.array([0, 0]))
    games.close()
    assert not any(worker.is_alive() for worker in workers)


@pytest.mark.parametrize("is_killed", [True, False])
def test_workers_end_with_their_parent(is_killed: bool) -> None:
    code = (
        "import time\n"
        "from tests.envs.vectors import make_gymnasium\n"
        "if __name__ == '__main__':\n"
        "    games = make_gymnasium('CartPole-v1', num_envs=2, seed=0, shape=(4,), processes=2)\n"
        "    print(*[worker.pid for worker in games._envs._workers], flush=True)\n"
        f"    time.sleep({60 if is_killed else 0})\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", code], stdout=subprocess.PIPE, text=True
    ) as parent:
        assert parent.stdout is not None
        workers = [int(word) for word in parent.stdout.readline().split()]
        assert len(workers) == 2
        if is_killed:
            parent.kill()
        parent.wait(timeout=20)
    deadline = time.monotonic() + 10
    while any(alive(pid) for pid in workers):
        assert time.monotonic() < deadline
        time.sleep(0.05)


def alive(pid: int) -> bool:
    try:
        with open(f"/proc/{pid}/stat") as stat:
            return stat.read().rsplit(")", 1)[1].split()[0] != "Z"
    except FileNotFoundError:
        return False


@pytest.mark.parametrize("processes", [0, 3])
def test_a_senseless_number_of_processes_is_refused(processes: int) -> None:
    with pytest.raises(ValueError, match=rf"processes = {processes}: must lie in 1\.\.2"):
        make_gymnasium("CartPole-v1", num_envs=2, seed=0, shape=(4,), processes=processes)
