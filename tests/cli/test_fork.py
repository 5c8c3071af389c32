"""A new run from a checkpoint of another: the same bits where nothing changes."""

from __future__ import annotations

import hashlib
import shutil
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file

from leap_rl.cli import main
from leap_rl.storage.run_folder import INITIALIZATION, RunFolder
from leap_rl.tracking.jsonl import read_rows
from leap_rl.training.rounds.meta_training import OUTER_OPTIMIZER
from tests.commands import BOWLS, LOCALLY, Refused, sums


@pytest.fixture(scope="module")
def parent(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of four meta-steps."""
    run = tmp_path_factory.mktemp("runs") / "parent"
    assert main(["train", *BOWLS, "--meta.meta_steps", "4", "--run_dir", str(run)]) == 0
    return run


def fork(parent: Path, at: int, run: Path, *options: str) -> int:
    return main(["fork", str(parent), "--at", str(at), "--run_dir", str(run), *options])


@pytest.mark.parametrize("at", [0, 2])
def test_a_fork_with_nothing_changed_gives_the_same_bits(
    parent: Path, at: int, tmp_path: Path
) -> None:
    assert fork(parent, at, tmp_path / "fork") == 0
    folder = RunFolder(tmp_path / "fork")
    assert folder.checkpoints() == list(range(at, 5))
    for number in range(at, 5):
        assert sums(tmp_path / "fork", number) == sums(parent, number)
    rows = read_rows(folder.path / "metrics.jsonl")
    assert [row["meta_step"] for row in rows] == list(range(at, 4))
    parents = read_rows(parent / "metrics.jsonl")[at:]
    assert [row["agent_steps"] for row in rows] == [row["agent_steps"] for row in parents]


def test_a_fork_says_where_it_comes_from_and_is_a_run_of_its_own(
    parent: Path, tmp_path: Path
) -> None:
    before = {path: path.read_bytes() for path in parent.rglob("*") if path.is_file()}
    assert fork(parent, 3, tmp_path / "fork") == 0
    assert before == {path: path.read_bytes() for path in parent.rglob("*") if path.is_file()}
    config = RunFolder(tmp_path / "fork").read_config()
    start = (parent / "checkpoints/000003" / INITIALIZATION).read_bytes()
    assert config["origin"] == {
        "run": "parent",
        "at": 3,
        "initialization_sha256": hashlib.sha256(start).hexdigest(),
        "optimizer_sha256": sums(parent, 3)[OUTER_OPTIMIZER],
    }
    assert [versions["meta_step"] for versions in config["made_by"]] == [3]
    assert config["fingerprint"] != RunFolder(parent).read_config()["fingerprint"]


def test_a_fork_can_be_stopped_resumed_extended_and_forked(parent: Path, tmp_path: Path) -> None:
    assert fork(parent, 1, tmp_path / "fork", "--meta.meta_steps", "2") == 0
    assert main(["resume", str(tmp_path / "fork"), "--meta.meta_steps", "3"]) == 0
    assert sums(tmp_path / "fork", 3) == sums(parent, 3)
    again = tmp_path / "again"
    assert fork(tmp_path / "fork", 2, again, "--meta.meta_steps", "4") == 0
    assert sums(again, 4) == sums(parent, 4)
    rows = read_rows(again / "metrics.jsonl")
    assert [row["meta_step"] for row in rows] == [2, 3]


@pytest.mark.parametrize(
    "options",
    [
        ["--meta.meta_lr", "0.01"],
        ["--seed", "1"],
        ["--task.games", '["bowl_0", "bowl_1"]'],
        ["--task.agent_steps", "80"],
        ["--meta.batch_size", "2"],
        ["--meta.p", "1"],
        ["--agent.lr", "0.02"],
    ],
)
def test_what_a_run_computes_may_change(parent: Path, options: list[str], tmp_path: Path) -> None:
    run = tmp_path / "fork"
    assert fork(parent, 3, run, *options) == 0
    assert sums(run, 3) == sums(parent, 3)
    assert sums(run, 4) != sums(parent, 4)
    assert main(["resume", str(run)]) == 0  # its fingerprint is that of its options


def test_another_optimizer_starts_from_scratch(
    parent: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = tmp_path / "sgd"
    options = ["--meta.optimizer", "sgd", "--meta.meta_lr", "1.0", "--meta.meta_steps", "5"]
    assert fork(parent, 4, run, *options) == 0
    assert "the outer optimizer starts from scratch" in capsys.readouterr().err
    assert sums(run, 4)[INITIALIZATION] == sums(parent, 4)[INITIALIZATION]
    assert load_file(run / "checkpoints/000005" / OUTER_OPTIMIZER) == {}
    assert fork(run, 4, tmp_path / "adam", "--meta.optimizer", "adam") == 0
    state = load_file(tmp_path / "adam/checkpoints/000005" / OUTER_OPTIMIZER)
    np.testing.assert_array_equal(state["step"], 1.0)


@pytest.mark.parametrize(
    ("argv", "parts"),
    [
        ([], ["--at S: is missing"]),
        (["--at"], ["--at : must be the number of a checkpoint"]),
        (["--at", "last"], ["--at last: must be the number of a checkpoint"]),
        (["--at=-1"], ["--at -1: must be"]),
        (["--at", "7"], ["--at 7", "has no such checkpoint; it has 0 to 4"]),
        (["--at", "4"], ["meta.meta_steps = 4", "--meta.meta_steps 5"]),
        (["--at", "2", "--meta.init", "x.safetensors"], ["meta.init = x.safetensors", "--at"]),
        (["--at", "2", "--meta.pp", "1"], ["meta.pp", "no such option", "meta.p"]),
        (
            ["--at", "2", "--task.kind", "catch", "--task.agent_steps", "20"],
            ["agent.algorithm = gradient_descent: learns bowls", "take agent.algorithm = a2c"],
        ),
        (
            ["--at", "2", "--task.kind", "catch", "--agent.algorithm", "auto"],
            ["checkpoint 2 of", "does not fit these options", "were they made for another"],
        ),
    ],
)
def test_what_cannot_be_is_one_line(
    parent: Path, argv: list[str], parts: list[str], tmp_path: Path, refused: Refused
) -> None:
    line = refused("fork", parent, *argv, "--run_dir", tmp_path / "run")
    assert all(part in line for part in parts), line
    assert not (tmp_path / "run").exists()


def test_a_folder_that_holds_a_run_is_not_written_to(parent: Path, refused: Refused) -> None:
    assert "holds a run already" in refused("fork", parent, "--at", 1, "--run_dir", parent)


def test_a_damaged_checkpoint_is_not_forked(parent: Path, tmp_path: Path, refused: Refused) -> None:
    shutil.copytree(parent, tmp_path / "damaged")
    (tmp_path / "damaged/checkpoints/000002" / INITIALIZATION).write_bytes(b"")
    line = refused("fork", tmp_path / "damaged", "--at", 2)
    assert "000002/initialization.safetensors: is damaged" in line


def test_agents_that_learn_alone_have_nothing_to_fork(tmp_path: Path, refused: Refused) -> None:
    games = ["--task.kind", "quadratic", "--task.games", '["bowl_0"]', "--task.num_envs", "2"]
    small = [*games, "--task.unroll_length", "1", "--task.agent_steps", "200", *LOCALLY]
    assert main(["learn", *small, "--run_dir", str(tmp_path / "run")]) == 0
    line = refused("fork", tmp_path / "run", "--at", 0)
    assert "is a run of leap-rl learn, which has nothing to fork" in line


def test_its_help_teaches(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["fork", "--help"]) == 0
    text = capsys.readouterr().out
    assert "usage: leap-rl fork RUN --at S" in text
    assert main(["fork"]) == 2


def test_without_a_folder_it_gets_one(
    parent: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["fork", str(parent), "--at=3"]) == 0
    (run,) = (tmp_path / "runs").glob("fork-*")
    assert sums(run, 4) == sums(parent, 4)
