"""benchmarks/learning_curve.py on a real run of `leap-rl learn`."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks import learning_curve
from leap_rl.cli import main


def test_a_runs_curve_is_printed_and_drawn(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    options = ["--task.kind", "catch", "--task.num_envs", "2", "--task.agent_steps", "400"]
    options = [*options, "--task.games", "[catch]", "--runtime.kind", "local"]
    run = tmp_path / "run"
    assert main(["learn", *options, "--run_dir", str(run)]) == 0
    capsys.readouterr()
    figure = tmp_path / "curve.svg"
    words = ["learning_curve", str(run), "--intervals", "2", "--out", str(figure)]
    monkeypatch.setattr("sys.argv", words)
    learning_curve.main()
    head, rule, *rows = capsys.readouterr().out.splitlines()
    assert head == "| game | million agent steps | episodes | mean return |"
    assert rule.startswith("|---")
    cells = [[cell.strip() for cell in row.strip("|").split("|")] for row in rows]
    assert [row[0] for row in cells] == ["catch", "catch"]
    assert sum(int(row[2]) for row in cells) > 2
    assert all(-10 <= float(row[3]) <= 10 for row in cells)
    assert figure.read_text().startswith("<?xml")
