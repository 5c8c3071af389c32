"""The tests of the compiled loops again, with a check of each index."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

TESTS = Path(__file__).parents[1]
COMPILED = (
    *["envs/test_minatar.py", "envs/test_preprocessing.py", "envs/test_atari_oracle.py"],
    *["networks/test_encoders.py", "networks/test_forward_backward.py"],
    *["learners/test_a2c.py", "learners/test_loss.py", "learners/test_returns.py"],
    *["learners/test_rmsprop.py", "learners/test_unrolled.py"],
)


@pytest.mark.slow
def test_no_loop_reads_or_writes_out_of_bounds(tmp_path: Path) -> None:
    # A cache of its own: numba's does not tell code with the check from code without it.
    checks = {"NUMBA_BOUNDSCHECK": "1", "NUMBA_CACHE_DIR": str(tmp_path)}
    command = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:xdist"]
    run = subprocess.run(
        [*command, *(str(TESTS / name) for name in COMPILED)],
        cwd=TESTS.parent,
        env=os.environ | checks,
        capture_output=True,
        text=True,
    )
    assert run.returncode == 0, run.stdout + run.stderr
