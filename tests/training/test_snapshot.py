"""A restored task ends with the bits and the rows that the undisturbed one ends with."""

from __future__ import annotations

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
from leap_rl.learners.learner import Learner
from leap_rl.learners.registry import make_learner
from leap_rl.learners.task import Progress, Task, TaskSpec
from leap_rl.meta import Leap
from leap_rl.meta.gradient_path import GradientPath, Method, NoMethod
from leap_rl.storage.checksummed_file import encode_arrays
from leap_rl.tasks.config import TaskConfig
from leap_rl.training.messages import CurvePoint
from leap_rl.training.trainer.recorder import TaskRecorder
from leap_rl.training.trainer.snapshot import restore_snapshot, take_snapshot

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
