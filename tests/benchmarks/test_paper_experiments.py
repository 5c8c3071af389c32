"""benchmarks/paper: what each cell computes, and one of them for real."""

from __future__ import annotations

from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from benchmarks.harness.runs import meta_train
from benchmarks.paper import omniglot_ablation, omniglot_scores
from leap_rl.core.parsing import parse_options
from leap_rl.runs.config import TrainConfig
from leap_rl.storage.run_folder import RunFolder
from tests.tasks.omniglot_images import write_zip


def cells(script: ModuleType, *words: str) -> list[dict[str, Any]]:
    given = script.options().parse_args(["--data", "images", *words])
    return [dict(cell) for cell in script.cells_of(given)]


def config_of(script: ModuleType, cell: dict[str, Any]) -> TrainConfig:
    return parse_options(TrainConfig, script.training_options(cell, "images"))


def test_every_method_is_trained_as_the_paper_says() -> None:
    found = {}
    for cell in cells(omniglot_scores, "--repeats", "2", "--pretraining", "3"):
        if cell["repeat"] == 0 or cell["method"] == "none":
            continue
        config = config_of(omniglot_scores, cell)
        assert (config.seed, config.task.omniglot.split) == (1, 1)
        assert (config.meta.batch_size, config.task.omniglot.pretraining) == (3, 3)
        assert (config.task.data, config.task.omniglot.held_out) == ("images", 2)
        assert (config.agent.classifier.lr, config.task.omniglot.batch_size) == (0.1, 20)
        assert config.task.games == "pretraining"
        rounds = omniglot_scores.rounds(cell)
        meta = config.meta
        found[meta.method] = (meta.optimizer, meta.meta_lr, config.task.omniglot.updates, rounds)
        if meta.method == "leap":
            assert (meta.p, meta.loss_in_path, meta.stabilizer) == (1, True, True)
    assert {name: found[name] for name in ("leap", "reptile", "maml", "fomaml")} == {
        "leap": ("sgd", 0.1, 100, 100),
        "reptile": ("sgd", 0.1, 100, 100),
        "maml": ("sgd", 0.5, 5, 100),
        "fomaml": ("sgd", 0.5, 100, 100),
    }
    *_, updates, rounds = found["pretraining"]
    assert (updates, rounds) == (10, 1000)


def test_the_ablation_is_of_the_six_configurations() -> None:
    found = [
        (meta.p, meta.stabilizer, meta.loss_in_path, meta.meta_lr, meta.optimizer, meta.method)
        for cell in cells(omniglot_ablation, "--repeats", "1")
        for meta in [config_of(omniglot_ablation, cell).meta]
    ]
    assert found == [
        (p, stabilizer, loss, meta_lr, "sgd", "leap")
        for p, meta_lr in ((1, 0.1), (2, 0.05))
        for stabilizer, loss in ((True, True), (False, True), (False, False))
    ]


@pytest.mark.slow
def test_a_cell_meta_trains_resumes_and_learns_what_was_held_out(tmp_path: Path) -> None:
    data, out = tmp_path / "images", tmp_path / "out"
    data.mkdir()
    alphabets = {"Greek": 20, "Latin": 20, "Hebrew": 20}
    write_zip(data / "images_background.zip", alphabets)
    small = ["--methods", "leap", "--repeats", "1", "--pretraining", "2", "--held_out", "1"]
    small += ["--updates", "3", "--learners", "2"]
    for meta_steps in (1, 2):
        (cell,) = cells(omniglot_scores, *small, "--meta_steps", str(meta_steps))
        result = omniglot_scores.run_cell(cell, data=str(data), out=out)
        (folder,) = (out / "runs").iterdir()
        assert RunFolder(folder).latest() == meta_steps
    trained = set(RunFolder(folder).read_state(1)["rows"][0]["values"])
    (held_out,) = result["alphabets"]
    assert held_out in alphabets
    assert {f"error/{name}/training" in trained for name in set(alphabets) - {held_out}} == {True}
    assert f"error/{held_out}/training" not in trained
    assert [len(values) for values in result["alphabets"][held_out].values()] == [2, 2]
    assert len(result["training_errors"]) == 3
    options = omniglot_scores.training_options(cell, str(data)) | {"seed": 5}
    with pytest.raises(ValueError, match="seed = 5: says what the run computes and was 0"):
        meta_train(folder, options, meta_steps=3)
