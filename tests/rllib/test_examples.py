"""The scripts in examples/ run, and what the docs print of them stands in them."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


def run(script: str, *words: str, folder: Path) -> str:
    """Run an example; returns what it printed. Ray's files stay in a folder of its own."""
    token = folder / "token"
    token.write_text("0" * 64)
    command = [sys.executable, str(ROOT / "examples" / script), *words]
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "RAY_AUTH_TOKEN_PATH": str(token)}
    environment.pop("RAY_ADDRESS", None)
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.slow
@pytest.mark.parametrize("algorithm", ["ppo", "appo", "impala"])
def test_rllibs_algorithms_train_from_an_initialization(algorithm: str, tmp_path: Path) -> None:
    words = ["--initialization", "pretrained:minatar-leap", "--iterations", "3", "--batch", "256"]
    printed = run("rllib_minatar.py", "--algorithm", algorithm, *words, folder=tmp_path)
    *_, last = printed.splitlines()
    assert last.startswith("3: ")
    assert "mean return" in last
