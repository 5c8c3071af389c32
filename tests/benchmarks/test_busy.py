"""Trainers of sleeping environments: who gets which task when, and that no bit depends on it."""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from benchmarks.system.busy import rank, study_of
from benchmarks.system.config import BusyConfig, CrowdConfig
from benchmarks.system.crowd import measure, run_spec_of
from benchmarks.system.lending import Cost, busy, meta_step
from leap_rl.core.parsing import parse_options
from leap_rl.runs.config import TrainConfig
from leap_rl.storage.run_folder import RunFolder
from leap_rl.training import messages
from leap_rl.training.rounds.rows import speed
from leap_rl.training.runtime.local import LocalRuntime
from leap_rl.training.server.parameter_server import ParameterServer
from leap_rl.training.trainer.trainer import Due

SLEEP = "benchmarks.system.sleeping:Sleep-v0@step_s="
GAMES = [f"{SLEEP}{step_s}" for step_s in (0.002, 0.03, 0.01)]


def run_of(folder: Path) -> TrainConfig:
    options = {
        "run_dir": str(folder),
        "task.kind": "gymnasium",
        "task.games": GAMES,
        "task.num_envs": 1,
        "task.agent_steps": 20,
        "agent.encoder": "mlp",
        "meta.batch_size": 3,
        "meta.meta_steps": 2,
    }
    return parse_options(TrainConfig, options, trusts_imports=True)


@dataclass
class ThreadClient:
    """A trainer's way to a server of this process that other threads call too."""

    server: ParameterServer
    lock: threading.Lock
    served: list[messages.Ticket] = field(default_factory=list)

    def _note(self, work: messages.Work) -> messages.Work:
        if isinstance(work, messages.Assignment):
            self.served.append(work.ticket)
        return work

    def claim(self, claim: messages.Claim) -> messages.Work:
        time.sleep(0.01)
        with self.lock:
            return self._note(self.server.claim(claim))

    def due(self, *, restorable: bool) -> Due:
        return Due.NOTHING

    def stream(self, message: messages.Stream) -> messages.Continue | messages.Abandon | None:
        raise AssertionError("nothing is due")

    def complete(self, message: messages.Complete) -> messages.Counted | messages.Abandon:
        with self.lock:
            answer = self.server.complete(message)
            if isinstance(answer, messages.Counted):
                self._note(answer.next)
            return answer

    def diverged(self, message: messages.Diverged) -> messages.Abandon:
        raise AssertionError(message.reason)


def test_two_trainers_take_the_slowest_tasks_first_to_the_bits_of_one(tmp_path: Path) -> None:
    spec = run_spec_of(run_of(tmp_path / "two"))
    server, lock, served = spec.make_server(), threading.Lock(), list[messages.Ticket]()
    trainers = [
        spec.make_trainer(name=name, incarnation=1, server=ThreadClient(server, lock, served))
        for name in ("trainer-0", "trainer-1")
    ]
    threads = [threading.Thread(target=trainer.run) for trainer in trainers]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    two = RunFolder(tmp_path / "two")
    states = [two.read_state(number) for number in (1, 2)]
    row = states[0]["rows"][0]["values"]
    games = [slot["game"] for slot in states[1]["slots"]]
    order = [games[ticket.slot] for ticket in served if ticket.round == 1]
    speeds = [speed(row, game) for game in order]
    assert None not in speeds
    assert speeds == sorted(speeds)
    assert 0 < row["time/busy_share"] <= 1

    LocalRuntime().run(run_spec_of(run_of(tmp_path / "one")), lambda status: None)
    one = RunFolder(tmp_path / "one")
    assert [one.read_state(n)["sha256"] for n in (1, 2)] == [s["sha256"] for s in states]


def test_the_benchmarks_tasks_take_from_once_to_twice_as_long() -> None:
    assert [rank(index, 3) for index in range(3)] == [1.0, 1.5, 2.0]
    study = study_of(BusyConfig(trainers=3, task_s=10.0))
    assert study.meta.batch_size == 3
    assert study.task.agent_steps == 500
    step_s = [float(game.rpartition("=")[2]) for game in study.members]
    assert step_s == [0.02, 0.03, 0.04]


def test_lent_cores_halve_what_is_left_of_emulation() -> None:
    costs = [Cost(1.0, 0.0), Cost(3.0, 0.0), Cost(1.0, 0.0), Cost(0.0, 3.0)]
    assert meta_step(costs[:2], lends=False) == pytest.approx(3.0)
    assert meta_step(costs[:2], lends=True) == pytest.approx(2.0)
    assert meta_step(costs[2:], lends=True) == pytest.approx(3.0)  # learning is not spread
    assert busy(costs[:2], 2, lends=False) == pytest.approx(2 / 3)
    assert busy(costs[:2], 1, lends=True) == pytest.approx(2 / 3)  # machines of one core
    assert busy(costs[:2], 2, lends=True) == pytest.approx(1.0)


@pytest.mark.slow
def test_a_simulated_crowd_with_a_death_makes_its_meta_step() -> None:
    (load,) = measure(CrowdConfig(trainers=[52], seconds=4.0), lambda text: None)["loads"]
    assert load["trainers"] == 52
    assert load["messages_per_s"] > 0
    assert 0 < load["first_next_s"] <= load["all_next_s"]
