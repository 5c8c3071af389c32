from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from leap_rl.core.errors import RunFailedError
from leap_rl.meta import Leap
from leap_rl.meta.gradient_path import GradientPath
from leap_rl.storage.run_folder import RunFolder
from leap_rl.training import messages
from leap_rl.training.server.parameter_server import ParameterServer
from leap_rl.training.trainer.recorder import LossMean
from leap_rl.training.trainer.trainer import Due, Trainer
from tests.training.fakes import SIZE, FakePlan, FakeTasks, make_server, newest_sum

UPDATES = 5


class RecordingLink:
    """A link to a real server that streams after every update and keeps what passed."""

    def __init__(self, server: ParameterServer) -> None:
        self.server = server
        self.streams: list[messages.Stream] = []
        self.completes: list[messages.Complete] = []
        self.views: list[tuple[int, np.ndarray]] = []
        self.abandon_at: int | None = None
        self.sends = Due.SUM

    def claim(self, claim: messages.Claim) -> messages.Work:
        return self.server.claim(claim)

    def due(self) -> Due:
        return self.sends

    def stream(self, message: messages.Stream) -> messages.Continue | messages.Abandon:
        if self.abandon_at == len(self.streams):
            self.abandon_at = None
            self.server.trainer_lost("t", "killed")
        self.streams.append(message)
        answer = self.server.stream(message)
        n, view = newest_sum(self.server, message.ticket.slot)
        if view is not None:
            self.views.append((n, view.copy()))
        return answer

    def complete(self, message: messages.Complete) -> messages.Counted | messages.Abandon:
        self.completes.append(message)
        return self.server.complete(message)

    def diverged(self, message: messages.Diverged) -> messages.Abandon:
        return self.server.diverged(message)


@pytest.fixture
def plan() -> FakePlan:
    return FakePlan(rounds=1, batch=2)


@pytest.fixture
def link(tmp_path: Path, plan: FakePlan) -> RecordingLink:
    return RecordingLink(make_server(RunFolder(tmp_path / "run"), plan))


def train(link: RecordingLink, tasks: FakeTasks) -> None:
    Trainer(name="t", incarnation=1, server=link, make_task=tasks, method=Leap()).run()


def lone_path(tasks: FakeTasks, slot: int, updates: int, *, finish: bool = True) -> GradientPath:
    """The path of a slot's task over its first updates, made without trainer and server."""
    task = tasks(tasks.made[slot].spec)
    theta0 = torch.zeros(SIZE)
    task.start(theta0)
    path = Leap().start(theta0)
    for _ in range(updates):
        task.advance(path.visit)
    if finish:
        end = task.end_point(with_grad=False)
        path.finish(end.theta, end.loss)
    return path


def test_the_servers_view_at_n_is_the_paths_own_at_n(link: RecordingLink) -> None:
    tasks = FakeTasks(UPDATES)
    train(link, tasks)
    assert [n for n, _ in link.views] == [0, 1, 2, 3, 4] * 2
    for index, (n, view) in enumerate(link.views):
        path = lone_path(tasks, index // UPDATES, updates=n + 1, finish=False)
        assert path.segments == n
        np.testing.assert_array_equal(view, path.gradient().numpy())
    assert len(np.unique([view[0] for _, view in link.views])) > UPDATES  # they do differ


def test_what_counts_is_the_whole_path(link: RecordingLink, plan: FakePlan) -> None:
    tasks = FakeTasks(UPDATES)
    train(link, tasks)
    (_, slots) = plan.closed[0]
    for index, slot in enumerate(slots):
        path = lone_path(tasks, index, updates=UPDATES)
        assert path.segments == UPDATES
        np.testing.assert_array_equal(slot.contribution, path.gradient().numpy())


def test_the_record_says_what_the_task_did(link: RecordingLink, plan: FakePlan) -> None:
    train(link, FakeTasks(UPDATES))
    slot = plan.closed[0][1][1]  # seed 1: losses 10/2, 10/3, ...
    assert (slot.record.updates, slot.record.agent_steps) == (UPDATES, 10 * UPDATES)
    losses = [10.0 / (update + 2) for update in range(UPDATES)]
    assert slot.record.losses["total"] == pytest.approx(np.mean(losses))
    assert slot.record.path.keys() == {"energy", "loss_pull", "displacement", "first_step"}
    assert slot.episodes.returns.tolist() == [1.0, 2.0, 3.0, 4.0, 5.0]
    assert slot.episodes.agent_steps.tolist() == [10, 20, 30, 40, 50]
    assert [point.agent_steps for point in slot.record.curve] == [10, 20, 30, 40, 50]
    assert sum(point.episodes for point in slot.record.curve) == UPDATES
    assert sum(point.return_sum for point in slot.record.curve) == 15.0
    assert [point.rewards for point in slot.record.curve] == [0.5] * UPDATES


def test_an_abandoned_task_is_dropped_and_its_slot_filled_again(
    link: RecordingLink, plan: FakePlan
) -> None:
    link.abandon_at = 2
    tasks = FakeTasks(UPDATES)
    train(link, tasks)
    assert len(tasks.made) == 3
    assert all(task.closed for task in tasks.made)
    assert [message.ticket.attempt for message in link.completes] == [2, 1]
    path = lone_path(tasks, 0, updates=UPDATES)
    np.testing.assert_array_equal(plan.closed[0][1][0].contribution, path.gradient().numpy())


def test_numbers_gone_bad_stop_the_run_by_game_slot_update_and_seed(link: RecordingLink) -> None:
    tasks = FakeTasks(UPDATES, bad_update=3)
    train(link, tasks)
    failure = link.server.status().failure
    assert failure is not None
    assert re.match(
        r"game_0 \(slot 0 of round 0, task seed 0\) went wrong at update 3: loss", failure
    )
    assert len(tasks.made) == 1
    assert tasks.made[0].closed


def test_a_snapshot_that_does_not_fit_its_sum_is_one_line(link: RecordingLink) -> None:
    link.sends, link.abandon_at = Due.SNAPSHOT, 3
    claim_of = link.claim

    def lie(claim: messages.Claim) -> messages.Work:
        work = claim_of(claim)
        if isinstance(work, messages.Assignment) and work.snapshot is not None:
            return replace(work, durable_n=work.durable_n + 1)
        return work

    link.claim = lie  # type: ignore[method-assign]
    with pytest.raises(RunFailedError, match=r"holds 2 segments and its slot's sum 3; delete"):
        train(link, FakeTasks(UPDATES))


def test_an_agent_comes_back_only_where_it_is_carried_over(tmp_path: Path) -> None:
    plan = FakePlan(rounds=1, batch=1, saves_agents=True)
    folder = RunFolder(tmp_path / "kept")
    link = RecordingLink(make_server(folder, plan))
    train(link, FakeTasks(UPDATES))
    assert link.completes[0].agent.keys() == {"theta"}
    assert folder.agent(0, "game_0").exists()

    link = RecordingLink(make_server(RunFolder(tmp_path / "not"), FakePlan(rounds=1, batch=1)))
    train(link, FakeTasks(UPDATES))
    assert link.completes[0].agent == {}


def test_each_loss_is_averaged_over_the_updates_that_had_it() -> None:
    mean = LossMean()
    assert mean.means() == {}
    for losses in ({"total": 1.0}, {"total": 2.0, "validation": 0.5}, {"total": 6.0}):
        mean.add(losses)
    assert mean.means() == {"total": 3.0, "validation": 0.5}
