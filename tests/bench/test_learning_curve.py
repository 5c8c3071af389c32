"""benchmarks/learning_curve.py on a real run of `leap-rl learn`."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from leap_rl.cli import main

ROOT = Path(__file__).parents[2]


def test_a_runs_curve_is_printed_and_drawn(tmp_path: Path) -> None:
    options = ["--task.kind", "catch", "--task.num_envs", "2", "--task.agent_steps", "400"]
    options = [*options, "--task.games", "[catch]", "--runtime.kind", "local"]
    run = tmp_path / "run"
    assert main(["learn", *options, "--run_dir", str(run)]) == 0
    figure = tmp_path / "curve.svg"
    words = [sys.executable, "-m", "benchmarks.learning_curve", str(run), "--intervals", "2"]
    words += ["--out", str(figure)]
    out = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    head, rule, *rows = out.splitlines()
    assert head == "| game | million agent steps | episodes | mean return |"
    assert rule.startswith("|---")
    cells = [[cell.strip() for cell in row.strip("|").split("|")] for row in rows]
    assert [row[0] for row in cells] == ["catch", "catch"]
    assert sum(int(row[2]) for row in cells) > 2
    assert all(-10 <= float(row[3]) <= 10 for row in cells)
    assert figure.read_text().startswith("<?xml")
