from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from benchmarks.harness.differences import differences
from leap_rl.cli import main
from leap_rl.storage.run_folder import RunFolder

CATCH = [
    *["--task.kind", "catch", "--task.num_envs", "2", "--task.agent_steps", "320"],
    *["--meta.meta_steps", "2", "--meta.batch_size", "2", "--runtime.kind", "local"],
    *["--tracking.console", "quiet"],
]


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    folders = [tmp_path_factory.mktemp("runs") / name for name in ("one", "other")]
    for folder, seed in zip(folders, ("0", "1"), strict=True):
        assert main(["train", *CATCH, "--seed", seed, "--run_dir", str(folder)]) == 0
    return folders


def copy(run: Path, tmp_path: Path) -> RunFolder:
    return RunFolder(shutil.copytree(run, tmp_path / "copy"))


def rewrite(folder: RunFolder, number: int, change: str) -> None:
    """Change a checkpoint as a run that went another way would have written it."""
    files, state = folder.read_checkpoint(number)
    if change == "rows":
        (row,) = state["rows"]
        name = next(name for name in row["values"] if name.startswith("path/"))
        row["values"][name] += 1e-12
    elif change == "clock":
        (row,) = state["rows"]
        row["values"]["time/meta_step_s"] += 5.0
        state["slots"][0] |= {"attempt": 7, "trainer": "another"}
    elif change == "tasks":
        state["slots"][0]["seed"] += 1
    folder.write_checkpoint(number, files, state)


def test_other_bits_are_differences(runs: list[Path]) -> None:
    lines = differences(*map(RunFolder, runs))
    assert any("checkpoint 0: initialization.safetensors is " in line for line in lines)
    assert "checkpoint 1: the rows differ" in lines
    assert "checkpoint 1: the tasks differ" in lines
    assert "checkpoint 2: the episodes differ" in lines


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ("none", []),
        ("clock", []),
        ("rows", ["checkpoint 2: the rows differ"]),
        ("tasks", ["checkpoint 2: the tasks differ"]),
        ("episodes", ["checkpoint 2: the episodes differ"]),
    ],
)
def test_rows_tasks_and_episodes_count_but_clocks_and_trainers_do_not(
    runs: list[Path], tmp_path: Path, change: str, expected: list[str]
) -> None:
    folder = copy(runs[0], tmp_path)
    if change == "episodes":
        shutil.copy(folder.curves(0), folder.curves(1))
    else:
        rewrite(folder, 2, change)
    assert differences(RunFolder(runs[0]), folder) == expected


def test_a_short_or_damaged_run_differs(runs: list[Path], tmp_path: Path) -> None:
    folder = copy(runs[0], tmp_path)
    latest = folder.path / "checkpoints" / "latest"
    latest.write_text("000001\n")
    (line,) = differences(RunFolder(runs[0]), folder)
    assert "meta-steps" in line
    latest.write_text("000002\n")
    state = folder.checkpoint(2) / "state.json"
    state.write_text(json.dumps({}))
    (line,) = differences(RunFolder(runs[0]), folder)
    assert "state.json" in line
