from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from typing import Any

import numpy as np
import pytest

from leap_rl.envs.atari.settings import AtariSettings
from leap_rl.envs.vector import GameVector
from leap_rl.envs.workers import WorkerEnvs
from tests.envs.own_games import WALK
from tests.envs.vectors import bits, make_atari, make_gymnasium, play

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
    os.kill(workers[0].pid, signal.SIGINT)
    games._envs.step(np.array([0, 0]))
    with pytest.raises(RuntimeError, match=r"(?s)environment process 1 failed:.*AssertionError"):
        games._envs.step(np.array([0, 99]))
    os.kill(workers[0].pid, signal.SIGKILL)
    with pytest.raises(ChildProcessError, match=r"environment process 0 \(exit code -9\)"):
        games._envs.step(np.array([0, 0]))
    games.close()
    assert not any(worker.is_alive() for worker in workers)


def test_a_killed_parent_leaves_no_worker_behind() -> None:
    code = (
        "import time\n"
        "from tests.envs.vectors import make_gymnasium\n"
        "if __name__ == '__main__':\n"
        "    games = make_gymnasium('CartPole-v1', num_envs=2, seed=0, shape=(4,), processes=2)\n"
        "    print(*[worker.pid for worker in games._envs._workers], flush=True)\n"
        "    time.sleep(60)\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", code], stdout=subprocess.PIPE, text=True
    ) as parent:
        assert parent.stdout is not None
        workers = [int(word) for word in parent.stdout.readline().split()]
        assert len(workers) == 2
        parent.kill()
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
