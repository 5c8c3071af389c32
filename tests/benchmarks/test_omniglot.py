from __future__ import annotations

import pytest
import torch
from leap_rl.tasks.images.config import OmniglotConfig

from benchmarks.system import omniglot
from benchmarks.system.omniglot import (
    METHOD,
    SPEC,
    PlainLoop,
    RandomImages,
)
from leap_rl.learners.task import Task
from leap_rl.meta.gradient_path import GradientPath

MAKE = RandomImages(OmniglotConfig(updates=3, batch_size=5))


def test_the_plain_loop_learns_what_the_task_learns() -> None:
    task, theta0 = MAKE(SPEC), MAKE.random_initialization(0)
    task.start(theta0)
    plain, path = PlainLoop(task), METHOD.start(theta0, borrow=True)
    errors = []
    for update in range(3):
        plain.update(update)
        errors.append(task.advance(path.visit).losses["training_error"])
    for name, tensor in plain.network.state_dict().items():
        torch.testing.assert_close(tensor, task.named_parameters()[name], rtol=1e-5, atol=1e-6)
    assert not torch.equal(task.learner.shared, theta0)
    assert torch.allclose(torch.tensor(plain.errors), torch.tensor(errors))


def test_a_task_that_is_timed_has_not_come_to_its_end(monkeypatch: pytest.MonkeyPatch) -> None:
    ended = []

    def look(plain: PlainLoop, task: Task, path: GradientPath) -> float:
        seconds = time_task(plain, task, path)
        ended.append(task.done)
        return seconds

    time_task = omniglot._time_task
    monkeypatch.setattr(omniglot, "_time_task", look)
    omniglot._loops(MAKE, 0.0)
    assert ended == [False] * omniglot.LEAST_CYCLES
