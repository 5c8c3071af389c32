from __future__ import annotations

from pathlib import Path

import pytest
import torch

from benchmarks.harness.curves import Curve, learn, moving_average
from benchmarks.harness.runs import meta_train
from leap_rl.learners.config import AgentConfig
from leap_rl.learners.registry import make_learner
from leap_rl.learners.task import TaskSpec
from leap_rl.tasks.config import TaskConfig
from leap_rl.tasks.images.config import OmniglotConfig
from tests.tasks.omniglot_images import write_zip


def test_areas_and_moving_averages_are_means() -> None:
    assert Curve((1.0, 0.5, 0.0), 0.25).area == 0.5
    assert moving_average([1.0, 2.0, 3.0, 5.0], 2) == [1.5, 2.5, 4.0, 5.0]


def test_an_alphabet_is_learned_to_the_metrics_of_its_task(tmp_path: Path) -> None:
    write_zip(tmp_path / "images_background.zip", {"Latin": 20})
    omniglot = OmniglotConfig(updates=3, batch_size=10)
    config = TaskConfig(kind="omniglot", games=["Latin"], data=str(tmp_path), omniglot=omniglot)
    tasks = make_learner(task=config, agent=AgentConfig())
    spec, theta0 = TaskSpec(game="Latin", seed=1), tasks.random_initialization(0)
    curve = learn(tasks, spec, theta0)
    task = tasks(spec)
    task.start(theta0)
    figures = [task.advance(lambda *_, **__: None).losses for _ in range(3)]
    assert list(curve.training_errors) == [each["training_error"] for each in figures]
    assert curve.final_validation_error == figures[-1]["validation_error"]
    assert not torch.equal(theta0, task.end_point(with_grad=False).theta)


def test_a_run_that_fails_says_why(tmp_path: Path) -> None:
    options = {"task.kind": "omniglot", "task.data": str(tmp_path / "none")}
    with pytest.raises(ValueError, match=r"^task.data = .*no such file"):
        meta_train(tmp_path / "run", options, meta_steps=1)
