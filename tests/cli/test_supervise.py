"""A driver that is killed is started again: by the command itself, or by what supervises it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from leap_rl.cli import EXIT_TERMINATED, main
from leap_rl.core.machine import descendants
from leap_rl.runs.config import TrainConfig
from leap_rl.runs.header import LoadedRun, RunHeader
from leap_rl.runs.invocation import Invocation
from leap_rl.runs.process import supervise
from leap_rl.storage.run_folder import RunFolder
from tests.commands import LOCALLY, start, wait_until

ROOT = Path(__file__).parents[2]
TRAIN = ["train", "--config", "debug", *LOCALLY, "--task.agent_steps", "400"]
TRAIN += ["--meta.meta_steps", "3", "--run_dir"]


def test_a_driver_that_is_killed_is_started_again(tmp_path: Path) -> None:
    calm = RunFolder(tmp_path / "calm")
    assert main([*TRAIN, str(calm.path)]) == 0
    process = start(*TRAIN, "run", "--runtime.max_driver_restarts", "1", cwd=tmp_path)
    folder = RunFolder(tmp_path / "run")
    wait_until(lambda: (folder.latest() or 0) >= 1, process)
    (driver,) = descendants(process.pid)
    os.kill(driver, signal.SIGKILL)
    out, err = process.communicate()
    assert process.returncode == 0, err
    assert err.splitlines() == [
        "leap-rl: the driver was killed (SIGKILL); resuming run, restart 1 of 1"
    ]
    assert out.count("Meta-trained for 3 meta-steps.") == 1
    assert folder.read_state(3)["sha256"] == calm.read_state(3)["sha256"]


def test_a_driver_that_is_being_started_is_told_to_stop(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    start_process = subprocess.Popen

    def start_as_the_signal_comes(words: list[str], **options: Any) -> subprocess.Popen[bytes]:
        signal.raise_signal(signal.SIGTERM)
        return start_process([sys.executable, "-c", "import time; time.sleep(60)"], **options)

    config = TrainConfig.from_yaml("debug", {"runtime.max_driver_restarts": 5})
    header = RunHeader(fingerprint="", init_sha256=None, made_by=())
    run = LoadedRun(folder=RunFolder(tmp_path), header=header, config=config)
    monkeypatch.setattr(subprocess, "Popen", start_as_the_signal_comes)
    status = supervise(run, Invocation(started_s=time.monotonic()))
    assert status == 128 + signal.SIGTERM


@pytest.mark.slow
def test_no_more_restarts_than_allowed_and_none_after_a_stop(tmp_path: Path) -> None:
    long = [*TRAIN, "run", "--task.agent_steps", "400000", "--runtime.max_driver_restarts", "1"]
    process = start(*long, cwd=tmp_path)
    folder = RunFolder(tmp_path / "run")
    for life in (1, 2):
        lease = folder.slot(0, 0).with_suffix(".lease")
        wait_until(lambda: lease.exists() and folder.worker() is not None, process)  # noqa: B023
        os.kill(folder.worker().pid, signal.SIGKILL)  # type: ignore[union-attr]
        if life == 1:
            lease.unlink()
    _, err = process.communicate()
    assert process.returncode == 128 + signal.SIGKILL
    assert "once more than 1 times, as runtime.max_driver_restarts allows" in err.splitlines()[-1]

    process = start("resume", "run", "--runtime.max_driver_restarts", "5", cwd=tmp_path)
    # The command itself works in the folder before it starts the driver.
    wait_until(lambda: (worker := folder.worker()) and worker.pid != process.pid, process)
    process.send_signal(signal.SIGTERM)
    _, err = process.communicate()
    assert process.returncode == EXIT_TERMINATED, err
    assert "resuming" not in err


def test_the_container_that_compose_restarts_resumes_its_run(tmp_path: Path) -> None:
    """launch/docker-compose.yml says `restart: on-failure`; test_start.py has Kubernetes."""
    text = (ROOT / "launch/container/node").read_text()
    assert "rm -rf /tmp/ray\n" in text
    # What is removed there is the container's own; here it may be somebody's.
    node = tmp_path / "node"
    node.write_text(text.replace("/tmp/ray", f"{tmp_path}/ray"))
    for name, lines in (
        ("start-node", "exit 0"),
        ("leap-rl", f'echo "$@" >> {tmp_path}/calls; mkdir -p {tmp_path}/run; '
                    f"touch {tmp_path}/run/config.yaml; kill -KILL $$"),
    ):  # fmt: skip
        (tmp_path / name).write_text(f"#!/bin/sh\n{lines}\n")
        (tmp_path / name).chmod(0o755)
    environment = {**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}"}
    words = ["sh", str(node), "head", str(tmp_path / "run"), "--config", "x.yaml"]
    for _ in range(2):
        done = subprocess.run(words, env=environment, check=False)
        assert done.returncode == -signal.SIGKILL
    address = "--runtime.address auto"
    assert (tmp_path / "calls").read_text().splitlines() == [
        f"train --run_dir {tmp_path}/run {address} --config x.yaml",
        f"resume {tmp_path}/run {address}",
    ]
