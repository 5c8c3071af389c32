"""HAT and Progressive Nets against what must hold of them, and the table of all methods."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from benchmarks.paper import multi_cv
from benchmarks.paper.learners import hat
from benchmarks.paper.learners.hat import HAT
from benchmarks.paper.learners.progressive import ProgressiveNets
from benchmarks.paper.learners.task_aware import TaskAware
from leap_rl.core.parsing import parse_options
from leap_rl.learners.classifier.classifier import make_classifier
from leap_rl.learners.classifier.sets import ImageSetTask
from leap_rl.learners.config import AgentConfig, ClassifierConfig
from leap_rl.learners.task import TaskSpec
from leap_rl.runs.config import TrainConfig
from leap_rl.tasks.config import TaskConfig
from leap_rl.tasks.images.config import ImagesConfig
from leap_rl.tasks.images.sets import read_folder
from tests.tasks.image_sets import write_idx

SETS = ["fashion", "mnist", "other"]


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("sets")
    for seed, name in enumerate(SETS):
        write_idx(folder / name, seed=seed)
    return folder


def learner(kind: type[TaskAware], data: Path, **options: Any) -> TaskAware:
    images = ImagesConfig(updates=5, batch_size=8, test=False)
    task = TaskConfig(kind="images", games=SETS, data=str(data), images=images)
    classifier = ClassifierConfig(**options)
    return kind(task=task, agent=AgentConfig(options={"sets": SETS}, classifier=classifier))


def begun(tasks: TaskAware, game: str, start: Tensor) -> Any:
    task = tasks(TaskSpec(game=game, seed=1))
    task.start(start)
    return task


def learned(task: ImageSetTask) -> Tensor:
    while not task.done:
        task.advance(lambda point: None)
    return task.learner.shared.clone()


def logits(task: ImageSetTask, shared: Tensor) -> Tensor:
    task.learner.load_shared(shared)
    with torch.no_grad():
        found: Tensor = task.learner.network(task.batch(0).images)
    return found


# -- HAT --------------------------------------------------------------------------------------


def hard(tasks: TaskAware) -> Tensor:
    """Return a start whose masks are 0 and 1, overlapping ones, and in which mnist was learned."""
    start = tasks.random_initialization(5)
    parts = tasks.shared_layout().named(start)
    torch.manual_seed(2)
    parts["embeddings"].copy_(6.0 * torch.randint(0, 2, parts["embeddings"].shape) - 3.0)
    parts["learned"].copy_(torch.tensor([0.0, 1.0, 0.0]))
    return start


def test_an_embeddings_gradient_is_as_if_s_were_1_times_s_max(data: Path) -> None:
    tasks = learner(HAT, data)
    start, named = tasks.random_initialization(5), tasks.shared_layout().named
    named(start)["embeddings"].mul_(0.01)  # so that σ(s e) is not quite 0 or 1
    task = begun(tasks, "mnist", start)
    for _ in range(2):
        e, loss = task.encoder.embeddings, task.training_metrics(task.batch(0)).loss
        (found,) = torch.autograd.grad(loss, e, retain_graph=True)
        gradient = named(task.backward(loss))["embeddings"]
        a, steep = torch.sigmoid(task.s * e.detach().double()), torch.sigmoid(e.detach().double())
        by_mask = found / (task.s * a * (1 - a))  # ∂L/∂a
        own = (a * (1 - a) > 1e-3) & torch.tensor([False, True, False])[:, None, None]
        expected = by_mask * 400 * steep * (1 - steep)
        torch.testing.assert_close(gradient[own].double(), expected[own], rtol=1e-3, atol=0)
        assert own.sum() > 30
        task.advance(lambda point: None)


def test_what_a_set_takes_no_other_changes(data: Path) -> None:
    tasks = learner(HAT, data)
    start, named = hard(tasks), tasks.shared_layout().named
    earlier = begun(tasks, "mnist", start)
    before = logits(earlier, start)
    after = learned(begun(tasks, "fashion", start))
    moved = named(after)["layers.conv2.weight"] != named(start)["layers.conv2.weight"]
    inputs, outputs = named(start)["embeddings"][1, :2] > 0  # that mnist has taken
    assert not moved[outputs][:, inputs].any()
    assert moved[outputs][:, ~inputs].any()
    assert moved[~outputs][:, inputs].any()
    assert torch.equal(logits(earlier, after), before)
    # On a revisit the set's own mask protects nothing from itself; the other set's would.
    again = learned(begun(tasks, "mnist", start))
    assert not torch.equal(logits(earlier, again), before)
    assert named(after)["learned"].tolist() == [1, 1, 0]


def test_masks_harden_over_an_epoch_and_only_a_sets_own_is_trained(data: Path) -> None:
    tasks = learner(HAT, data)
    start, named = tasks.random_initialization(5), tasks.shared_layout().named
    named(start)["embeddings"].mul_(10)  # beyond the bound of 6
    task = begun(tasks, "mnist", start)
    s = []
    while not task.done:
        s.append(task.s)
        task.advance(lambda point: None)
    assert s == pytest.approx([1 / 400 + (400 - 1 / 400) * i / 4 for i in range(5)])
    changed = named(task.learner.shared)["embeddings"]
    same = changed == named(start)["embeddings"]
    assert [bool(one.all()) for one in same] == [True, False, True]
    assert changed[1].abs().max() <= 6


def test_an_error_is_of_the_network_that_is_tested(data: Path) -> None:
    task = begun(learner(HAT, data), "mnist", hard(learner(HAT, data)))
    batch = task.shown(task.data.training, torch.arange(48))
    soft, tested = task.learner.metrics(batch, task.s).error, task.learner.evaluate(batch).error
    assert soft != tested
    assert task.training_metrics(batch).error == tested


def test_the_regularizer_is_of_units_that_no_other_set_has(
    data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """λ Σ a (1 − A) / Σ (1 − A), with A of mnist alone."""
    monkeypatch.setattr(hat, "S_MAX", 1.0)  # s stays 1
    losses, tasks = {}, learner(HAT, data)
    start = hard(tasks)
    for weight in (0.0, 0.75):
        monkeypatch.setattr(hat, "REGULARIZATION", weight)
        task = begun(tasks, "fashion", start)
        losses[weight] = float(task.training_metrics(task.batch(0)).loss.detach())
    own, others, _ = torch.sigmoid(tasks.shared_layout().named(start)["embeddings"])
    expected = 0.75 * float((own * (1 - others)).sum() / (1 - others).sum())
    assert losses[0.75] - losses[0.0] == pytest.approx(expected, rel=1e-4)


def test_it_trains_in_the_precision_that_is_asked_for(data: Path) -> None:
    losses = set()
    for precision in ("float32", "bfloat16"):
        tasks = learner(HAT, data, precision=precision)
        task = begun(tasks, "mnist", tasks.random_initialization(5))
        losses.add(float(task.training_metrics(task.batch(0)).loss.detach()))
    assert max(losses) == pytest.approx(min(losses), rel=0.05)
    assert len(losses) == 2


# -- Progressive Nets -------------------------------------------------------------------------


def test_a_column_sees_the_layers_before_of_all_others(data: Path) -> None:
    """The formula of the module's docstring, in torch's own functions."""
    tasks = learner(ProgressiveNets, data)
    task = begun(tasks, "mnist", tasks.random_initialization(5))
    images, named = task.batch(0).images, task.named_parameters()
    features = [images] * 3
    for i in range(4):
        before, features = features, []
        for k, others in enumerate(([1, 2], [0, 2], [0, 1])):
            column = f"encoder.columns.{k}."
            hidden = F.conv2d(before[k], named[f"{column}layers.conv{i + 1}.weight"], padding=1)
            if i > 0:
                scales = named[f"{column}scales"][i - 1]
                seen = torch.cat([a * before[j] for a, j in zip(scales, others, strict=True)], 1)
                narrow = F.relu(F.conv2d(seen, named[f"{column}down.{i - 1}.weight"]))
                hidden = hidden + F.conv2d(narrow, named[f"{column}up.{i - 1}.weight"])
            hidden = F.batch_norm(hidden, None, None, training=True)  # which starts as it is
            features.append(F.max_pool2d(F.relu(hidden), 2))
    found = task.learner.network.encoder(images)
    torch.testing.assert_close(found, features[1].flatten(1), rtol=1e-3, atol=1e-4)


def test_without_adapters_a_column_is_a_lone_network(data: Path) -> None:
    tasks = learner(ProgressiveNets, data)
    start, task = tasks.random_initialization(5), tasks(TaskSpec(game="mnist", seed=1))
    with_adapters = logits(task, start)
    for name, value in tasks.shared_layout().named(start).items():
        if ".up." in name:
            value.zero_()
    without_adapters = logits(task, start)
    lone, parameters = make_classifier(4, channels=3), task.named_parameters()
    own = {name.replace("columns.1.layers.", ""): value for name, value in parameters.items()}
    lone.load_state_dict(own, strict=False)
    expected = lone(task.batch(0).images).detach()
    assert torch.equal(without_adapters, expected)
    assert not torch.equal(with_adapters, expected)


def test_only_the_column_that_is_learned_changes(data: Path) -> None:
    tasks = learner(ProgressiveNets, data)
    start, named = tasks.random_initialization(5), tasks.shared_layout().named
    after = learned(begun(tasks, "mnist", start))
    changed = {
        name.rsplit(".", 1)[0]
        for name, before in named(start).items()
        if not torch.equal(before, named(after)[name])
    }
    assert {name.split(".")[1] for name in changed} == {"1"}
    assert {"columns.1.down.0", "columns.1.up.2", "columns.1.layers.conv1"} <= changed
    assert "columns.1" in changed  # its α


def test_the_number_of_parameters_has_a_closed_form(data: Path) -> None:
    encoder = learner(ProgressiveNets, data).encoder(0)
    found = sum(one.numel() for one in encoder.parameters())
    assert found == 3 * 112_832 + 3 * 3 * (2 * 64 * 8 + 8 * 64 + 2)


# -- the command ------------------------------------------------------------------------------


OURS = "benchmarks.paper.learners"


def test_every_method_learns_as_many_tasks() -> None:
    words = ["--data", "d", "--sets", *SETS, "--held_out", "mnist", "mnist", "--repeats", "1"]
    given = multi_cv.options().parse_args(words)
    found, cells = {}, multi_cv.cells_of(given)
    assert len(cells) == 8, "a set that is named twice is held out once"
    for cell in cells:
        if cell["method"] != "none":
            options = multi_cv.training_options(cell, "d")
            config = parse_options(TrainConfig, options, trusts_imports=True)
            assert config.task.games == ["fashion", "other"]
            meta = config.meta
            tasks = meta.batch_size * multi_cv.meta_steps(cell)
            name = cell["method"], cell["optimizer"]
            found[name] = (meta.method, meta.outer, config.agent.algorithm, tasks)
    sequential = ("pretraining", ("sgd", 1.0))
    assert found == {
        ("leap", "adam"): ("leap", ("adam", 0.01), "auto", 40),
        ("leap", "sgd"): ("leap", ("sgd", 0.05), "auto", 40),
        ("reptile", "adam"): ("reptile", ("adam", 0.01), "auto", 40),
        ("reptile", "sgd"): ("reptile", ("sgd", 1.0), "auto", 40),
        ("finetune", None): (*sequential, "auto", 40),
        ("progressive", None): (*sequential, f"{OURS}.progressive:ProgressiveNets", 40),
        ("hat", None): (*sequential, f"{OURS}.hat:HAT", 40),
    }


def test_the_table_is_made_and_made_again_from_its_cells(
    data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["multi_cv", "--data", str(data), "--held_out", "mnist", "--repeats", "1"]
    words += ["--meta_steps", "1", "--evaluation_epochs", "1"]
    words += ["--methods", "leap", "hat", "none", "--out", str(tmp_path), "--processes", "1"]
    monkeypatch.setattr("sys.argv", words)
    assert multi_cv.main() == 0, capsys.readouterr().err
    cells = [json.loads(line) for line in (tmp_path / "cells.jsonl").open()]
    assert [one["cell"]["method"] for one in cells] == ["leap", "leap", "hat", "none"]
    assert all(0 <= one["result"]["test_error"] <= 1 for one in cells)
    assert "| mnist | leap | sgd |" in capsys.readouterr().out
    assert (tmp_path / "images.sha256").read_text().strip() == read_folder(str(data)).sha256
    assert multi_cv.main() == 0
    assert "4 of 4 cells are done" in capsys.readouterr().out
    errors = {one["cell"]["method"]: 100 * one["result"]["test_error"] for one in cells}
    (row,) = (tmp_path / "multi_cv_differences.csv").read_text().splitlines()[3:]
    assert row.startswith(f"mnist,hat,,{errors['hat'] - errors['none']:.2f}")


def test_sets_that_nobody_is_told_of_are_refused(data: Path) -> None:
    words = ["--data", str(data), "--sets", *SETS[:2], "--held_out", "mnist", "other"]
    with pytest.raises(ValueError, match="--held_out other: not among the sets"):
        multi_cv.cells_of(multi_cv.options().parse_args(words))
    task = TaskConfig(kind="images", games=SETS, data=str(data))
    with pytest.raises(ValueError, match=r"agent\.options = .*hat takes sets alone.*'other'"):
        HAT.check(task, AgentConfig(options={"sets": SETS[:2]}), 1)
