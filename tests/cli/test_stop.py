"""A run that is asked to stop is left such that it can be resumed, and says how."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from pathlib import Path

import pytest

from leap_rl.cli import EXIT_FAILED, EXIT_INTERRUPTED, EXIT_STOPPED, EXIT_TERMINATED, main
from leap_rl.core.errors import RunFailedError
from leap_rl.core.machine import descendants
from leap_rl.runs import execution
from leap_rl.storage.checksummed_file import decode_arrays
from leap_rl.storage.run_folder import RunFolder
from leap_rl.tracking.live import read_live
from tests.commands import BOWLS, Process, start, wait_until

DEBUG = ["--config", "debug", "--tracking.tensorboard", "false"]
LONG = [*DEBUG, "--task.agent_steps", "4000", "--meta.meta_steps", "1000", "--run_dir", "run"]
LOCAL = ["--runtime.kind", "local"]
ALONE = [*LOCAL, "--runtime.trainers", "1", "--tracking.console", "quiet"]
RAY = ["--runtime.kind", "ray", "--runtime.trainers", "2"]

HANGS = """
import sys, time
from leap_rl.cli import main
from leap_rl.training.runtime.local import LocalClient

def hang(self, message):
    print("hangs", flush=True)
    time.sleep(100)

LocalClient.complete = hang
sys.exit(main(sys.argv[1:]))
"""


def end(process: Process, *, status: int, within_s: float) -> str:
    """What the process says when it ends, as is hoped for."""
    started = time.monotonic()
    out, err = process.communicate(timeout=60)
    assert process.returncode == status, err
    assert time.monotonic() - started < within_s
    assert "Traceback" not in err
    assert out == ""
    return err.splitlines()[-1]


def check_resumable(cwd: Path) -> None:
    """The run can go on: here to the end of the meta-step that it is in."""
    folder = RunFolder(cwd / "run")
    latest = folder.latest()
    assert latest is not None
    argv = ["--meta.meta_steps", str(latest + 1), *ALONE, "--runtime.stop_after_s", "null"]
    assert main(["resume", str(folder.path), *argv]) == 0
    assert folder.latest() == latest + 1


@pytest.mark.parametrize(
    ("runtime", "number", "status"),
    [
        (LOCAL, signal.SIGINT, EXIT_INTERRUPTED),
        # SIGTERM is below, and test_same_bits.py has Ray's Ctrl-C.
        pytest.param(RAY, signal.SIGTERM, EXIT_TERMINATED, marks=pytest.mark.chaos),
    ],
    ids=["local INT", "ray TERM"],
)
def test_a_signal_to_all_processes_leaves_a_resumable_run(
    runtime: list[str], number: signal.Signals, status: int, tmp_path: Path
) -> None:
    process = start("train", *LONG, *runtime, cwd=tmp_path)
    wait_until(RunFolder(tmp_path / "run").slot(0, 0).exists, process)
    os.killpg(process.pid, number)
    last = end(process, status=status, within_s=10)
    assert last.startswith("stopped; continue with: ")
    assert last.endswith("resume run")
    if runtime is LOCAL:  # it was not left at once, but stopped by itself
        assert (tmp_path / "run/.lock").read_bytes() == b""
    check_resumable(tmp_path)


def test_a_run_that_is_asked_to_stop_leaves_a_snapshot(tmp_path: Path) -> None:
    # Tasks that last: none ends between the look and the signal.
    lasting = ["--task.agent_steps", "40000000"]
    seldom = ["--runtime.snapshot_every_s", "1000"]
    process = start("train", *LONG, *LOCAL, *lasting, *seldom, cwd=tmp_path)
    folder = RunFolder(tmp_path / "run")

    def is_at_work() -> bool:
        live = read_live(folder.path)
        return live is not None and any(task.agent_steps > 100 for task in live.status.running)

    wait_until(is_at_work, process)
    process.send_signal(signal.SIGTERM)
    last = end(process, status=EXIT_TERMINATED, within_s=10)
    assert last.startswith("stopped; continue with: ")
    assert last.endswith("resume run")
    assert (folder.path / ".lock").read_bytes() == b""
    (snapshot,) = folder.slots(0).glob("*.snapshot")
    assert decode_arrays(snapshot.read_bytes())[1]["content"]["n"] > 0


def test_a_second_ctrl_c_leaves_a_run_that_hangs(tmp_path: Path) -> None:
    process = start("train", *LONG, *LOCAL, cwd=tmp_path, program=("-c", HANGS))
    assert process.stdout is not None
    assert process.stdout.readline() == "hangs\n"
    process.send_signal(signal.SIGINT)
    time.sleep(0.5)
    assert process.poll() is None
    process.send_signal(signal.SIGINT)
    assert end(process, status=EXIT_INTERRUPTED, within_s=2).endswith("resume run")
    check_resumable(tmp_path)


@pytest.mark.slow
def test_a_second_ctrl_c_leaves_a_cluster_at_once(tmp_path: Path) -> None:
    process = start("train", *LONG, *RAY, cwd=tmp_path)
    wait_until(RunFolder(tmp_path / "run").slot(0, 0).exists, process)
    below = descendants(process.pid)
    process.send_signal(signal.SIGINT)
    time.sleep(0.4)  # it ends its cluster, which takes longer
    process.send_signal(signal.SIGINT)
    assert end(process, status=EXIT_INTERRUPTED, within_s=2).endswith("resume run")
    deadline = time.monotonic() + 10
    while any(map(is_running, below)):
        assert time.monotonic() < deadline
        time.sleep(0.05)
    assert not list(Path("/tmp").glob(f"leap_rl-{process.pid}-*")), "Ray's files are left behind"
    check_resumable(tmp_path)


def is_running(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def test_a_run_stops_when_its_time_is_over(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    started = time.monotonic()
    timed = [*LOCAL, "--runtime.stop_after_s", "2", "--run_dir", str(tmp_path / "run")]
    assert main(["train", *LONG, *timed]) == EXIT_STOPPED
    assert time.monotonic() - started >= 2
    assert capsys.readouterr().err.splitlines()[-1].startswith("stopped; continue with: ")
    check_resumable(tmp_path)


def test_what_fails_because_the_run_is_to_stop_is_no_failure(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    # A batch system ends a run's processes together; this one may hear of it last.
    def run(*_: object, **__: object) -> None:
        raise RunFailedError("the parameter server died")

    monkeypatch.setattr(execution, "_run_rounds", run)
    argv = ["train", *DEBUG, *LOCAL, "--run_dir"]
    assert main([*argv, str(tmp_path / "alone")]) == EXIT_FAILED
    assert "the parameter server died" in capsys.readouterr().err

    def run_and_hear(*_: object, **__: object) -> None:
        subprocess.Popen(["sh", "-c", f"sleep 0.1; kill -TERM {os.getpid()}"])
        run()

    monkeypatch.setattr(execution, "_run_rounds", run_and_hear)
    assert main([*argv, str(tmp_path / "together")]) == EXIT_TERMINATED
    assert "stopped; continue with" in capsys.readouterr().err


def test_no_write_is_torn_in_the_local_runtime(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The signal comes in the middle of every write: each is finished before the run stops.
    calls: list[int] = []
    fsync = os.fsync

    def interrupt_and_sync(descriptor: int) -> None:
        calls.append(descriptor)
        if len(calls) == which:
            os.kill(os.getpid(), signal.SIGINT)
        fsync(descriptor)

    short = [*BOWLS, "--meta.meta_steps", "2"]
    monkeypatch.setattr(os, "fsync", interrupt_and_sync)
    which, run = 0, tmp_path / "calm"
    assert main(["train", *short, "--run_dir", str(run)]) == 0
    created = 10  # the writes that make the folder; Python's own handler is at work there
    for which in range(created, len(calls), 3):
        calls.clear()
        run = tmp_path / str(which)
        assert main(["train", *short, "--run_dir", str(run)]) in (0, EXIT_INTERRUPTED)
        assert not list(run.glob("**/*.tmp")), which
