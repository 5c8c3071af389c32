"""A data set as a task, and whole runs on sets of a few images."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from leap_rl.cli import main
from leap_rl.core.seeding import Purpose, derive_seed
from leap_rl.learners.classifier.sets import ImageSetTask
from leap_rl.learners.config import AgentConfig, ClassifierConfig
from leap_rl.learners.registry import make_learner
from leap_rl.learners.task import Progress, TaskSpec
from leap_rl.tasks.config import TaskConfig
from leap_rl.tasks.images.config import ImagesConfig
from leap_rl.tasks.images.formats import Labelled
from tests.commands import LOCALLY, Refused
from tests.end_to_end.whole_runs import OFTEN, initializations, stopped_within
from tests.tasks.image_sets import write_idx

FEW = ImagesConfig(updates=6, batch_size=8, validation=0.2)


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("sets")
    write_idx(folder / "mnist")
    write_idx(folder / "fashion", zipped=True, seed=9)
    return folder


def make_task(data: Path, images: ImagesConfig = FEW, **options: Any) -> ImageSetTask:
    task = TaskConfig(kind="images", games=["mnist"], data=str(data), images=images)
    classifier = ClassifierConfig(**options)
    learner = make_learner(task=task, agent=AgentConfig(classifier=classifier))
    made = learner(TaskSpec(game="mnist", seed=7))
    assert isinstance(made, ImageSetTask)
    made.start(learner.random_initialization(3))
    return made


def run(task: ImageSetTask) -> list[Progress]:
    progress = []
    while not task.done:
        progress.append(task.advance(lambda point: None))
    return progress


def test_a_task_is_a_plain_torch_loop(data: Path) -> None:
    """The paper's network, SGD and cosine annealing, written with torch's own modules."""
    task = make_task(data)
    layers: list[nn.Module] = []
    for inputs in (3, 64, 64, 64):
        layers += [nn.Conv2d(inputs, 64, 3, padding=1, bias=False)]
        layers += [nn.BatchNorm2d(64, track_running_stats=False), nn.ReLU(), nn.MaxPool2d(2)]
    network = nn.Sequential(*layers, nn.Flatten(), nn.Linear(256, 4))
    assert sum(one.numel() for one in network.parameters()) == 112_832 + 4 * 257
    values = task.learner.flat.copies().values()
    for parameter, value in zip(network.parameters(), values, strict=True):
        assert parameter.shape == value.shape
        parameter.data = value
    optimizer = torch.optim.SGD(network.parameters(), lr=0.1)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=6)
    training, seed = task.data.training, derive_seed(7, Purpose.DATA, "order", 0)
    order = torch.randperm(48, generator=torch.Generator().manual_seed(seed)).numpy()
    for update in range(6):
        places = order[8 * update : 8 * update + 8]
        gray = torch.from_numpy(training.images[places]).permute(0, 3, 1, 2).float() / 255
        images = (F.pad(gray, (2, 2, 2, 2)).repeat(1, 3, 1, 1) - 0.1) / 0.2752
        loss = F.cross_entropy(network(images), torch.from_numpy(training.labels[places]))
        optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        schedule.step()
        losses = task.advance(lambda point: None).losses
        assert losses["total"] == pytest.approx(float(loss.detach()), rel=1e-4)
    assert task.done
    constant = make_task(data, replace(FEW, schedule="constant"))
    run(constant)
    assert constant.rate() == 1 > task.rate() == 0
    theirs = torch.cat([one.detach().flatten() for one in network.parameters()])
    ours = torch.cat([one.flatten() for one in task.learner.flat.copies().values()])
    torch.testing.assert_close(ours, theirs, rtol=1e-3, atol=1e-5)


def test_no_test_image_and_no_validation_image_is_ever_in_a_batch(data: Path) -> None:
    task = make_task(data)

    def seen(part: Labelled) -> set[bytes]:
        places = torch.arange(len(part.labels))
        return {one.numpy().tobytes() for one in task.shown(part, places).images}

    shown = [one.numpy().tobytes() for update in range(18) for one in task.batch(update).images]
    parts = task.data
    assert len(shown) == 3 * 48
    assert set(shown[:48]) == set(shown[48:96]) == seen(parts.training)
    assert shown[:48] != shown[48:96]
    assert not set(shown) & (seen(parts.test) | seen(parts.validation))


def test_the_test_error_is_measured_once_at_the_end(data: Path) -> None:
    progress = run(make_task(data, replace(FEW, updates=None, epochs=8)))
    assert len(progress) == 48
    for name in ("test_error", "validation_error"):
        assert [i for i, one in enumerate(progress) if name in one.losses] == [47]
    assert progress[0].losses["training_error"] > 0.4
    assert progress[-1].losses["test_error"] < 0.1
    early = make_task(data, replace(FEW, updates=2))
    found = run(early)[-1].losses["test_error"]
    assert found == early.evaluate(early.data.test)[1] != early.evaluate(early.data.training)[1]
    assert "test_error" not in run(make_task(data, replace(FEW, test=False)))[-1].losses


PATIENT = replace(FEW, updates=200, patience=4)


def test_patience_ends_a_task_and_a_snapshot_keeps_it(data: Path) -> None:
    task = make_task(data, PATIENT)
    start = task.learner.shared.clone()
    progress, states = [], []
    while not task.done:
        progress.append(task.advance(lambda point: None))
        states.append(task.state())
    errors = [one.losses["validation_error"] for one in progress]
    best = errors.index(min(errors))
    assert len(errors) == best + 1 + 4 < 200
    again = make_task(data, PATIENT)
    for number in (0, best, best + 2):
        again.restore(states[number])
        assert [one.losses for one in run(again)] == [one.losses for one in progress[number + 1 :]]
    again.carry_over(states[-1], start)
    assert not again.done


def test_no_task_ends_by_patience_that_has_not_just_validated(data: Path) -> None:
    progress = run(make_task(data, PATIENT, validate_every=7))
    validated = [one.updates for one in progress if "validation_error" in one.losses]
    assert validated[:2] == [4, 7]
    assert validated[-1] == len(progress) < 200


def small(data: Path, game: str) -> list[str]:
    return [
        *("--config", "multi_cv_paper", "--task.data", str(data), "--task.games", f'["{game}"]'),
        *("--task.images.batch_size", "8", "--task.images.updates", "250"),
        *("--task.images.patience", "2", *LOCALLY),
    ]


def options(data: Path, *more: str) -> list[str]:
    return [*small(data, "mnist"), "--meta.batch_size", "1", "--meta.meta_steps", "2", *more]


@pytest.mark.parametrize("method", ["leap", "pretraining"])
def test_a_run_is_killed_and_resumed_to_the_same_bits_and_another_set_is_learned(
    method: str, data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    argv = options(data, "--meta.method", method, "--meta.optimizer", "auto", "--meta.meta_lr", "1")
    whole, torn = tmp_path / "whole", tmp_path / "torn"
    assert main(["train", *argv, "--run_dir", str(whole)]) == 0
    with stopped_within(5):
        assert main(["train", *argv, *OFTEN, "--run_dir", str(torn)]) == 130
    assert main(["resume", str(torn)]) == 0
    assert initializations(torn) == initializations(whole)
    advice = f"--task.data {data} --task.images.batch_size 8\n"
    assert capsys.readouterr().out.count(advice) == 2, "who learns next gets as many images a batch"
    assert len(set(initializations(whole))) == 3
    *_, last = (json.loads(one) for one in (whole / "metrics.jsonl").open())
    assert 6 * 8 <= last["examples"] < 2 * 20 * 8, "each task ends by its patience"
    learned = tmp_path / "learned"
    learn = [*small(data, "fashion"), "--init", str(whole), "--task.images.test", "true"]
    assert main(["learn", *learn, "--run_dir", str(learned)]) == 0
    assert "test error" in capsys.readouterr().out
    rows = [json.loads(one) for one in (learned / "metrics.jsonl").open()]
    assert ["error/fashion/test" in row for row in rows] == [False] * (len(rows) - 1) + [True]


def test_what_cannot_be_is_one_line_and_leaves_nothing(
    data: Path, tmp_path: Path, refused: Refused
) -> None:
    run, changed = tmp_path / "run", tmp_path / "changed"
    for argv, says in (
        (["--task.games", '["cifar10"]'], "'cifar10' is no game of task.kind = images in /"),
        (["--meta.method", "maml"], "meta.method = maml: differentiates through all updates"),
        (["--agent.classifier.share", "all"], "agent.classifier.share = all: the last layers"),
        (["--task.kind", "omniglot"], "task.images: has no effect with task.kind = omniglot"),
    ):
        assert says in refused("train", *options(data, *argv), "--run_dir", str(run))
        assert not run.exists(), argv
    assert main(["train", *options(data), "--run_dir", str(run)]) == 0
    write_idx(changed / "mnist", seed=1)
    more = ["--meta.meta_steps", "3", "--task.data", str(changed)]
    assert "holds other images" in refused("resume", str(run), *more)
