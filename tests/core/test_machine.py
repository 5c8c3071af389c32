"""Cores, memory and processes of this machine; the compiled loops again, with checked indices."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from leap_rl.core import machine


def test_cores_are_those_that_this_process_may_use(monkeypatch: pytest.MonkeyPatch) -> None:
    here = psutil.Process().cpu_affinity()
    assert machine.cores() == len(here)
    try:
        psutil.Process().cpu_affinity(here[:1])
        assert machine.cores() == 1
    finally:
        psutil.Process().cpu_affinity(here)
    monkeypatch.delattr(psutil.Process, "cpu_affinity")  # as on macOS
    assert machine.cores() == psutil.cpu_count()


def test_memory_and_time_are_counted() -> None:
    total, free = machine.memory()
    assert 0 < free < total
    block = bytearray(50_000_000)
    block[::4096] = b"\1" * len(block[::4096])
    assert machine.resident_bytes([os.getpid()]) > len(block)
    before, busy = machine.cpu_s([os.getpid()]), machine.busy_s()
    end = time.process_time() + 0.2
    while time.process_time() < end:
        pass
    assert machine.cpu_s([os.getpid()]) - before >= 0.18
    assert machine.busy_s() - busy >= 0.18


def test_a_family_is_found_and_killed() -> None:
    script = "import subprocess, sys; subprocess.Popen(['sleep', '60']).wait()"
    child = subprocess.Popen([sys.executable, "-c", script])
    deadline = time.monotonic() + 20
    while len(machine.descendants(child.pid)) < 1:
        assert time.monotonic() < deadline
        time.sleep(0.02)
    assert child.pid in machine.descendants(os.getpid())
    (grandchild,) = machine.descendants(child.pid)
    machine.kill_descendants(child.pid)
    assert child.wait(20) == 0  # it outlives its own child
    assert not psutil.pid_exists(grandchild)
    assert machine.descendants(child.pid) == []


def test_children_are_killed_by_where_their_program_lies(tmp_path: Path) -> None:
    program = tmp_path / "bin" / "sleep"
    program.parent.mkdir()
    shutil.copy(str(shutil.which("sleep")), program)
    (tmp_path / "link").symlink_to(tmp_path / "bin")
    theirs, ours = (subprocess.Popen([path, "60"]) for path in (program, "sleep"))
    try:
        machine.kill_children_from(tmp_path / "link")
        assert theirs.wait(20) == -signal.SIGKILL
        with pytest.raises(subprocess.TimeoutExpired):
            ours.wait(0.5)
    finally:
        ours.kill()
        ours.wait()


# -- compiled loops -------------------------------------------------------------------------------

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
