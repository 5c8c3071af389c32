"""The image experiment through the command line: whole runs on made-up images."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
import torch
import yaml

from leap_rl.cli import main
from leap_rl.core import determinism
from leap_rl.learners.classifier.task import OmniglotTask
from leap_rl.learners.classifier.unrolled import gradient_through_descent
from leap_rl.learners.task import TaskSpec
from leap_rl.meta.config import MetaConfig
from leap_rl.runs.config import TrainConfig
from leap_rl.runs.header import read_run
from leap_rl.runs.kinds import make_tasks
from leap_rl.sharing.initialization import load_tensors
from leap_rl.storage.run_folder import INITIALIZATION, RunFolder
from leap_rl.tasks.images.data import read_omniglot
from leap_rl.training.rounds.meta_training import draw_games, task_seed
from leap_rl.training.runtime.ray.environment import LOCAL, make_ray_runtime
from tests.commands import Refused
from tests.end_to_end.whole_runs import OFTEN, initializations, stopped_within
from tests.tasks.omniglot_images import write_zip

ALPHABETS = {"Greek": 20, "Korean": 20, "Latin": 20}
LOCALLY = ["--runtime.kind", "local", "--tracking.console", "quiet"]


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("omniglot")
    write_zip(folder / "images_background.zip", ALPHABETS)
    return folder


def options(data: Path, *more: str) -> list[str]:
    return [
        *["--config", "omniglot_leap", "--task.data", str(data)],
        *["--meta.meta_steps", "2", "--meta.batch_size", "2", "--task.omniglot.updates", "3"],
        *["--task.omniglot.batch_size", "5", *more],
    ]


METHODS = {"leap": ["--meta.loss_difference", "same_batch"], "maml": ["--meta.method", "maml"]}


@pytest.fixture(scope="module", params=METHODS)
def trained(
    request: pytest.FixtureRequest, data: Path, tmp_path_factory: pytest.TempPathFactory
) -> tuple[list[str], Path]:
    argv = options(data, *METHODS[request.param])
    run = tmp_path_factory.mktemp(request.param) / "local"
    assert main(["train", *argv, *LOCALLY, "--run_dir", str(run)]) == 0
    return argv, run


def test_a_run_says_what_it_was_of(trained: tuple[list[str], Path], data: Path) -> None:
    _, run = trained
    stored = yaml.safe_load((run / "config.yaml").read_text())
    assert stored["task"]["data_sha256"] == read_omniglot(str(data)).sha256
    assert len(stored["task"]["games"]) == 2
    assert len(set(initializations(run))) == 3


def test_its_rows_are_errors_and_no_returns(trained: tuple[list[str], Path]) -> None:
    _, run = trained
    rows = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    assert [row["examples"] for row in rows] == [30, 60]
    games = yaml.safe_load((run / "config.yaml").read_text())["task"]["games"]
    for row in rows:
        for game in games:
            assert 0 <= row[f"error/{game}/training"] <= 1
            assert 0 <= row[f"error/{game}/validation"] <= 1
            assert row[f"loss/{game}/total"] > 0
        assert not [key for key in row if key.startswith("return/") or "agent_steps" in key]


def test_it_stops_and_is_resumed_to_the_same_bits(
    trained: tuple[list[str], Path], tmp_path: Path
) -> None:
    """Stopped within a task of the second meta-step, from a snapshot of every update."""
    argv, run = trained
    copy = tmp_path / "run"
    with stopped_within(9):
        assert main(["train", *argv, *LOCALLY, *OFTEN, "--run_dir", str(copy)]) == 130
    assert RunFolder(copy).latest() == 1
    assert list((copy / "slots").rglob("*.snapshot"))
    assert main(["resume", str(copy)]) == 0
    assert initializations(copy) == initializations(run)


def test_data_may_move_but_not_change(
    trained: tuple[list[str], Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    argv, run = trained
    other = tmp_path / "other"
    other.mkdir()
    write_zip(other / "images_background.zip", {**ALPHABETS, "Hebrew": 20})
    more = ["--meta.meta_steps", "3", "--task.data"]
    assert main(["resume", str(run), *more, str(other)]) == 2
    error = capsys.readouterr().err
    assert "holds other images" in error
    assert error.count("\n") <= 2
    assert main(["resume", str(run), *more, argv[argv.index("--task.data") + 1]]) == 0
    assert len(initializations(run)) == 4


@pytest.mark.parametrize("trained", ["maml"], indirect=True)
def test_maml_steps_by_the_gradient_through_all_updates(trained: tuple[list[str], Path]) -> None:
    """The second order, from the command line to the first outer step."""
    _, run = trained
    config = read_run(RunFolder(run)).config
    assert isinstance(config, TrainConfig)
    tasks = make_tasks(replace(config, meta=MetaConfig(method="leap")))  # of no order of their own
    layout = tasks.shared_layout()
    folder = RunFolder(run)
    theta0, theta1 = (
        layout.pack(load_tensors(folder.read_checkpoint(number)[0][INITIALIZATION]))
        for number in (0, 1)
    )
    gradients = []
    games = draw_games(config.seed, 0, config.task.resolved_games, 2)
    for slot, game in enumerate(games):
        task = tasks(TaskSpec(game=game, seed=task_seed(config.seed, 0, slot)))
        assert isinstance(task, OmniglotTask)
        task.start(theta0)
        gradient, _ = gradient_through_descent(
            task.learner.loss_at,
            task.learner.parameters.clone(),
            batches=[task.batch(update) for update in range(3)],
            last_batch=task._validation,
            lr=0.1,
        )
        gradients.append(gradient[: len(theta0)])
    step = config.meta.meta_lr * torch.stack(gradients).mean(0)
    assert step.norm() > 0
    torch.testing.assert_close(theta1 - theta0, -step, rtol=1e-3, atol=1e-6)


@pytest.fixture(scope="module")
def one_cluster() -> Iterator[None]:
    make_ray_runtime(trainers=2, address=LOCAL)
    from leap_rl.training.runtime.ray.runtime import cluster

    with cluster(None, 2):
        yield


@pytest.mark.slow
@pytest.mark.usefixtures("one_cluster")
@pytest.mark.parametrize("trained", METHODS, indirect=True)
def test_ray_gives_the_same_bits(trained: tuple[list[str], Path], tmp_path: Path) -> None:
    argv, run = trained
    on_ray = ["--runtime.trainers", "2", "--run_dir", str(tmp_path / "run")]
    assert main(["train", *argv, *on_ray]) == 0
    assert initializations(tmp_path / "run")[:3] == initializations(run)[:3]


def test_a_held_out_alphabet_is_learned_from_an_initialization(
    trained: tuple[list[str], Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    argv, run = trained
    init = run / "checkpoints/000001" / INITIALIZATION
    learn = ["--task.kind", "omniglot", "--task.games", "held_out", "--init", str(init)]
    learn += ["--task.omniglot.updates", "3", "--agent.classifier.validate_every", "1"]
    where = ["--task.data", argv[argv.index("--task.data") + 1], "--run_dir", str(tmp_path / "run")]
    assert main(["learn", *learn, *where, *LOCALLY]) == 0
    assert "final validation error" in capsys.readouterr().out
    rows = [json.loads(line) for line in (tmp_path / "run/metrics.jsonl").read_text().splitlines()]
    assert [row["examples"] for row in rows] == [20, 40, 60]
    (held_out,) = set(ALPHABETS) - set(
        yaml.safe_load((run / "config.yaml").read_text())["task"]["games"]
    )
    for row in rows:
        assert f"error/{held_out}/training" in row
        assert f"error/{held_out}/validation" in row


def test_missing_drawings_are_one_line_and_leave_nothing(tmp_path: Path, refused: Refused) -> None:
    argv = options(tmp_path / "none", "--run_dir", str(tmp_path / "run"))
    assert "github.com/brendenlake/omniglot" in refused("train", *argv)
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("units", [True, False])
def test_bfloat16_needs_a_processor_that_has_it(
    units: bool,
    data: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(determinism, "has_bfloat16_units", lambda: units)
    run = tmp_path / "run"
    precise = ["--agent.classifier.precision", "bfloat16", "--meta.meta_steps", "1"]
    status = main(["train", *options(data, *precise), *LOCALLY, "--run_dir", str(run)])
    assert status == (0 if units else 2)
    assert run.exists() == units
    if not units:
        error = capsys.readouterr().err
        assert "agent.classifier.precision = bfloat16: this processor has no units" in error
