"""What a trainer sends, and tasks restored from snapshots: bits and rows of the undisturbed one."""

from __future__ import annotations

import math
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from leap_rl.core.errors import RunFailedError
from leap_rl.envs.atari.settings import AtariConfig
from leap_rl.learners.config import AgentConfig
from leap_rl.learners.game_task import GameTask
from leap_rl.learners.learner import Learner
from leap_rl.learners.registry import make_learner
from leap_rl.learners.task import Progress, Task, TaskSpec
from leap_rl.meta import Leap
from leap_rl.meta.gradient_path import GradientPath, Method, NoMethod
from leap_rl.storage.checksummed_file import encode_arrays
from leap_rl.storage.run_folder import RunFolder
from leap_rl.tasks.config import TaskConfig
from leap_rl.training import messages
from leap_rl.training.messages import CurvePoint
from leap_rl.training.server.parameter_server import ParameterServer
from leap_rl.training.trainer import trainer
from leap_rl.training.trainer.recorder import LossMean, TaskRecorder
from leap_rl.training.trainer.snapshot import restore_snapshot, take_snapshot
from leap_rl.training.trainer.trainer import Due, Trainer
from tests.training.fakes import SIZE, FakePlan, FakeTask, FakeTasks, make_server, newest_sum

BOWLS = make_learner(
    task=TaskConfig(kind="quadratic", games="all", agent_steps=40, num_envs=1, unroll_length=1),
    agent=AgentConfig(lr=0.01),
)
CATCH = make_learner(
    task=TaskConfig(kind="catch", games="all", agent_steps=300, num_envs=4, unroll_length=5),
    agent=AgentConfig(lr=1e-3, max_grad_norm=0.5),
)
# Random episodes of Breakout end after some 200 agent steps, one between any two snapshots.
ATARI = make_learner(
    task=TaskConfig(
        games=["breakout"],
        agent_steps=800,
        num_envs=2,
        unroll_length=10,
        atari=AtariConfig(preset="noframeskip", sticky=0.25),
    ),
    agent=AgentConfig(encoder="mnih2013"),
)
CART_POLE = make_learner(
    task=TaskConfig(
        kind="gymnasium", games=["CartPole-v1"], agent_steps=300, num_envs=2, unroll_length=5
    ),
    agent=AgentConfig(encoder="mlp", normalize_observations=True),
)

Ended = dict[str, Any]


def begin(make: Learner, method: Method, seed: int = 3) -> tuple[Task, GradientPath, TaskRecorder]:
    """A fresh task, path and recorder, not started."""
    task = make(TaskSpec(game=make.task.resolved_games[0], seed=seed))
    path = method.start(make.random_initialization(1).clone(), borrow=True)
    return task, path, TaskRecorder(task.agent_steps_total)


def advance(task: Task, path: GradientPath, recorder: TaskRecorder, updates: int | None) -> None:
    while not task.done and (updates is None or recorder.updates < updates):
        recorder.add(task.advance(path.visit))


def end(task: Task, path: GradientPath, recorder: TaskRecorder) -> Ended:
    """All that a task leaves behind, the wall clock aside."""
    advance(task, path, recorder, None)
    point = task.end_point(with_grad=False)
    path.finish(
        point.theta,
        point.loss,
        point.grad,
        previous_batch_loss=point.previous_batch_loss,
        step_length=point.step_length,
    )
    task.close()
    episodes = recorder.episodes()
    return {
        "contribution": path.gradient(),
        "metrics": path.metrics(),
        "segments": path.segments,
        "agent": task.named_parameters(),
        "losses": recorder.losses.means(),
        "curve": [without_clock(point) for point in recorder.curve],
        "episodes": (episodes.agent_steps, episodes.returns, episodes.lengths),
        "mean_return": recorder.progress().mean_return,
    }


def without_clock(point: CurvePoint) -> CurvePoint:
    return replace(point, agent_steps_per_s=0.0)


def assert_same(one: Ended, two: Ended) -> None:
    assert torch.equal(one["contribution"], two["contribution"])
    assert one["agent"].keys() == two["agent"].keys()
    for name, tensor in one["agent"].items():
        assert torch.equal(tensor, two["agent"][name]), name
    for column, other in zip(one["episodes"], two["episodes"], strict=True):
        np.testing.assert_array_equal(column, other)
    for name in ("metrics", "segments", "losses", "curve", "mean_return"):
        assert one[name] == two[name], name


_undisturbed: dict[str, Ended] = {}


def undisturbed(make: Learner, method: Method) -> Ended:
    """How a task ends that nothing disturbs; computed once for all tests."""
    key = f"{make} {method}"
    if key not in _undisturbed:
        task, path, recorder = begin(make, method)
        task.start(make.random_initialization(1))
        _undisturbed[key] = end(task, path, recorder)
    return _undisturbed[key]


METHODS: list[Method] = [Leap(), Leap(p=1), NoMethod()]


# With every method where tasks are cheap; none sees where its task comes from.
CASES = [
    *(pytest.param(BOWLS, method, id=f"bowls-{method}"[:16]) for method in METHODS),
    pytest.param(CATCH, Leap(), id="catch-Leap"),
    pytest.param(ATARI, Leap(), id="breakout-Leap"),
]


def test_a_snapshot_within_an_interval_holds_what_was_earned_in_it() -> None:
    def update(number: int) -> Progress:
        agent_steps = 4 * number  # of 1,000: intervals end after updates 3, 5, 8, ...
        return Progress(updates=number, agent_steps=agent_steps, losses={}, rewards=10.0**number)

    recorder, other = TaskRecorder(1000), TaskRecorder(1000)
    recorder.add(update(1))
    other.restore(*recorder.state())
    for number in range(2, 6):
        other.add(update(number))
    assert [point.rewards for point in other.curve] == [1110.0, 110_000.0]


def test_updates_on_one_batch_are_in_one_interval() -> None:
    recorder = TaskRecorder(100)
    for number, agent_steps in enumerate((50, 50, 50, 100, 100), start=1):
        losses = {"total": float(number)}
        recorder.add(Progress(updates=number, agent_steps=agent_steps, losses=losses))
    recorder.end()
    assert [(point.agent_steps, point.losses["total"]) for point in recorder.curve] == [
        (50, 1.0),
        (100, 3.0),
    ]
    assert recorder.losses.means() == {"total": 3.0}


@pytest.mark.parametrize(("make", "method"), CASES)
def test_a_restored_task_ends_as_the_undisturbed_one(make: Learner, method: Method) -> None:
    expected = undisturbed(make, method)
    if make is not BOWLS:
        assert len(expected["episodes"][0]) > 0, "no episode has ended: the test shows too little"
        assert sum(point.rewards for point in expected["curve"]), "no reward was earned"
    else:
        assert {point.rewards for point in expected["curve"]} == {None}
    task, path, recorder = begin(make, method)
    task.start(make.random_initialization(1))
    for updates in (1, make.task.updates // 2, make.task.updates - 1):
        advance(task, path, recorder, updates)
        snapshot = take_snapshot(task, path, recorder)
        take_snapshot(task, path, recorder)  # any number of times
        if updates == 1:
            task.close()
            # Another seed: whatever is not restored would be drawn from it.
            task, path, recorder = begin(make, method, seed=99)
            restore_snapshot(snapshot, task, path, recorder)
            assert recorder.updates == 1
        else:
            fresh = begin(make, method, seed=updates)
            restore_snapshot(snapshot, *fresh)
            assert_same(end(*fresh), expected)
    assert_same(end(task, path, recorder), expected)


def test_the_loss_of_the_last_batch_is_in_the_snapshot_too() -> None:
    for tasks in (BOWLS, CATCH):
        make = replace(tasks, loss_difference="same_batch")
        expected = undisturbed(make, Leap())
        task, path, recorder = begin(make, Leap())
        task.start(make.random_initialization(1))
        advance(task, path, recorder, 7)
        fresh = begin(make, Leap())
        restore_snapshot(take_snapshot(task, path, recorder), *fresh)
        assert_same(end(*fresh), expected)


def test_emulators_may_be_spread_otherwise_after_a_restore() -> None:
    expected = undisturbed(ATARI, Leap())
    task, path, recorder = begin(ATARI, Leap())
    task.start(ATARI.random_initialization(1))
    advance(task, path, recorder, 20)
    fresh = begin(replace(ATARI, env_processes=2), Leap(), seed=5)
    restore_snapshot(take_snapshot(task, path, recorder), *fresh)
    assert_same(end(*fresh), expected)


@pytest.mark.parametrize("make", [ATARI, CART_POLE])
def test_environments_may_be_spread_otherwise_on_the_way(make: Learner) -> None:
    expected = undisturbed(make, Leap())
    task, path, recorder = begin(make, Leap())
    task.start(make.random_initialization(1))
    assert isinstance(task, GameTask)
    for updates, processes in ((10, 8), (20, 1)):
        advance(task, path, recorder, updates)
        task.spread(processes)
        assert task.env_processes == min(processes, 2)  # of as many environments
    assert_same(end(task, path, recorder), expected)


def test_another_process_resumes_the_task(tmp_path: Path) -> None:
    expected = undisturbed(CATCH, Leap())
    task, path, recorder = begin(CATCH, Leap())
    task.start(CATCH.random_initialization(1))
    advance(task, path, recorder, 9)
    take_snapshot(task, path, recorder).tofile(tmp_path / "snapshot")
    code = (
        "import sys\n"
        "import numpy as np\n"
        "from leap_rl.core.determinism import configure_torch\n"
        "configure_torch()\n"
        "from tests.training.test_snapshot import CATCH, Leap, begin, end, restore_snapshot\n"
        "parts = begin(CATCH, Leap(), seed=77)\n"
        "restore_snapshot(np.fromfile(sys.argv[1], dtype=np.uint8), *parts)\n"
        "end(*parts)['contribution'].numpy().tofile(sys.argv[2])\n"
    )
    words = [sys.executable, "-c", code, str(tmp_path / "snapshot"), str(tmp_path / "sum")]
    subprocess.run(words, check=True, cwd=Path(__file__).parents[2])
    contribution = np.fromfile(tmp_path / "sum", dtype=np.float32)
    assert np.array_equal(contribution, expected["contribution"].numpy())


def test_time_spent_before_a_snapshot_counts() -> None:
    now = 100.0
    task, path, recorder = begin(BOWLS, Leap())
    recorder = TaskRecorder(task.agent_steps_total, lambda: now)
    task.start(BOWLS.random_initialization(1))
    advance(task, path, recorder, 3)
    now = 130.0
    snapshot = take_snapshot(task, path, recorder)
    now = 1000.0
    other, its_path, _ = begin(BOWLS, Leap())
    later = TaskRecorder(task.agent_steps_total, lambda: now)
    restore_snapshot(snapshot, other, its_path, later)
    now = 1005.0
    assert later.working_s == 35.0


@pytest.mark.parametrize("other", [BOWLS, replace(CATCH, agent=AgentConfig(encoder="nature"))])
def test_a_snapshot_of_another_task_is_one_line(other: Learner) -> None:
    task, path, recorder = begin(CATCH, Leap())
    task.start(CATCH.random_initialization(1))
    advance(task, path, recorder, 2)
    snapshot = take_snapshot(task, path, recorder)
    with pytest.raises(RunFailedError, match=r"cannot be resumed from .* delete"):
        restore_snapshot(snapshot, *begin(other, Leap()))
    with pytest.raises(RunFailedError, match="cannot be resumed from"):
        restore_snapshot(
            np.frombuffer(encode_arrays({}, {}), dtype=np.uint8), *begin(CATCH, Leap())
        )
    with pytest.raises(RunFailedError, match="cannot be resumed from"):
        restore_snapshot(snapshot[:-5], *begin(CATCH, Leap()))


# -- the trainer ----------------------------------------------------------------------------------

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

    def due(self, *, restorable: bool) -> Due:
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


class Spread(FakeTask):
    """Notes over how many processes it is spread."""

    env_processes = 1

    def spread(self, processes: int) -> None:
        self.env_processes = processes
        spreads.append(processes)


spreads: list[int] = []


@pytest.mark.parametrize(("pays_s", "expected"), [(0.0, [3, 6, 1]), (math.inf, [])])
def test_lent_cores_are_taken_if_they_double_those_in_use_and_given_back(
    link: RecordingLink, monkeypatch: pytest.MonkeyPatch, pays_s: float, expected: list[int]
) -> None:
    spreads.clear()
    offers, stream = iter([3, 5, 6, 1, None] * 2), link.stream
    monkeypatch.setattr(trainer, "SPREADING_PAYS_S", pays_s)
    monkeypatch.setattr(
        link, "stream", lambda message: replace(stream(message), env_processes=next(offers))
    )
    tasks = FakeTasks(UPDATES)
    monkeypatch.setattr(tasks, "make", Spread)
    train(link, tasks)
    assert spreads == 2 * expected


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
