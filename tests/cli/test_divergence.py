"""Tasks whose numbers go bad, as the user of a run sees them."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from leap_rl.cli import EXIT_FAILED, main
from leap_rl.learners.gradient_descent.task import bowl
from leap_rl.tasks.suites import QUADRATIC_GAMES

LR = 1.36
"""Gradient descent on a bowl of curvatures a diverges where LR · max a > 2."""
BOWLS = [
    *["--config", "debug", "--tracking.tensorboard", "false"],
    *["--runtime.kind", "local", "--meta.batch_size", str(len(QUADRATIC_GAMES))],
    *["--agent.lr", str(LR), "--task.num_envs", "1", "--task.unroll_length", "1"],
    *["--task.agent_steps", "4000", "--meta.meta_steps", "1", "--tracking.console", "plain"],
]
LOST = sorted(game for game in QUADRATIC_GAMES if LR * float(bowl(game).curvature.max()) > 2.02)


def run(path: Path, on_divergence: str) -> int:
    return main(["train", *BOWLS, "--task.on_divergence", on_divergence, "--run_dir", str(path)])


def row(path: Path) -> dict[str, Any]:
    (line,) = (path / "metrics.jsonl").read_text().splitlines()
    values: dict[str, Any] = json.loads(line)
    return values


def test_some_bowls_diverge_and_some_do_not() -> None:
    assert 0 < len(LOST) < len(QUADRATIC_GAMES)


def test_by_default_the_run_stops_with_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(tmp_path / "run", "stop") == EXIT_FAILED
    error = capsys.readouterr().err.splitlines()[-1]
    assert any(game in error for game in LOST)
    for part in ("slot ", "round 0", "task seed ", "update ", "task.on_divergence = restart_task"):
        assert part in error


def test_what_is_dropped_is_said_in_the_row_and_on_the_console(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(tmp_path / "run", "drop_task") == 0
    figures = row(tmp_path / "run")
    assert figures["tasks/dropped"] == len(LOST)
    dropped = {key.split("/")[1] for key in figures if key.count("/") == 2 and "dropped" in key}
    assert sorted(dropped) == LOST
    assert f"{len(LOST)} task" in capsys.readouterr().err


def test_other_seeds_of_a_task_that_must_diverge_stop_the_run_too(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(tmp_path / "run", "restart_task") == EXIT_FAILED
    assert "as with 3 other seeds before" in capsys.readouterr().err.splitlines()[-1]


def test_agents_that_are_left_lie_where_the_outcome_says(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    options = ["--task.kind", "quadratic", "--task.on_divergence", "drop_task", *BOWLS[4:6]]
    options += ["--agent.lr", str(LR), "--task.num_envs", "1", "--task.unroll_length", "1"]
    options += ["--task.agent_steps", "4000", "--run_dir", str(tmp_path / "run")]
    assert main(["learn", *options]) == 0
    output = capsys.readouterr().out
    files = re.findall(r"(\S+\.safetensors)", output)
    assert len(files) == len(QUADRATIC_GAMES) - len(LOST)
    assert all(Path(file).exists() for file in files)
    assert sorted(re.findall(r"^  (\w+) +dropped: it went wrong", output, re.MULTILINE)) == LOST
