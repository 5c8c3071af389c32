"""The cluster of a run is gone: told in one line, or, by its supervisor, resumed."""

from __future__ import annotations

import os
import signal
import socket
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil
import pytest

from leap_rl.cli import EXIT_FAILED
from leap_rl.core.machine import descendants
from leap_rl.storage.run_folder import RunFolder
from leap_rl.training.runtime.ray.environment import LOCAL, make_ray_runtime
from tests.commands import Process, start, undisturbed, wait_until

OPTIONS = ["--config", "debug", "--meta.meta_steps", "1", "--task.agent_steps", "60000"]
OPTIONS += ["--meta.batch_size", "1", "--runtime.snapshot_every_s", "0.5"]


def make_service(port: int, **patience: float) -> Any:
    make_ray_runtime(trainers=1, address=LOCAL)  # before Ray is imported
    from leap_rl.training.runtime.ray.cluster_watch import Service

    return Service(name="raylet", address=f"127.0.0.1:{port}", **patience)


def test_a_service_is_gone_when_it_refuses_for_too_long() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        own = make_service(port, refused_s=0.0, silent_s=60.0)
        joined = make_service(port, refused_s=0.4, silent_s=60.0)
        assert not own.is_gone()
        assert not joined.is_gone()
    assert own.is_gone()
    assert not joined.is_gone()
    time.sleep(0.5)
    assert joined.is_gone()
    with socket.create_server(("127.0.0.1", port)):  # as a GCS that is started again
        assert not joined.is_gone()
    assert not joined.is_gone()


def test_a_service_that_is_silent_has_longer(monkeypatch: pytest.MonkeyPatch) -> None:
    def connect(*_: object) -> socket.socket:
        raise TimeoutError

    service = make_service(1, refused_s=0.0, silent_s=0.4)
    monkeypatch.setattr(socket, "create_connection", connect)
    assert not service.is_gone()
    time.sleep(0.5)
    assert service.is_gone()


def named(process: Process, name: str) -> Callable[[], list[int]]:
    """Return a look at the processes of a command that have a name."""

    def look() -> list[int]:
        found = []
        for pid in descendants(process.pid):
            try:
                if psutil.Process(pid).name() == name:
                    found.append(pid)
            except psutil.Error:
                continue
        return found

    return look


def kill_at_work(process: Process, name: str, folder: RunFolder) -> None:
    wait_until(lambda: any(folder.slots(0).glob("*.snapshot")), process)
    (victim,) = named(process, name)()
    os.kill(victim, signal.SIGKILL)


@pytest.mark.parametrize(
    ("name", "what"),
    [
        ("gcs_server", "control service (GCS)"),
        pytest.param("raylet", "raylet", marks=pytest.mark.chaos),
    ],
)
def test_a_lost_cluster_is_one_line_with_the_way_to_continue(
    name: str, what: str, tmp_path: Path
) -> None:
    lasts = ["--task.agent_steps", "240000000", "--tracking.console", "quiet", "--run_dir", "run"]
    process = start("train", *OPTIONS, *lasts, "--runtime.trainers", "1", cwd=tmp_path)
    kill_at_work(process, name, RunFolder(tmp_path / "run"))
    out, err = process.communicate(timeout=50)  # Ray itself takes 61 s
    assert process.returncode == EXIT_FAILED
    (line,) = err.splitlines()
    assert line.startswith(f"leap-rl: Ray's {what} at 127.0.0.1:"), line
    assert line.endswith("is gone; stopped; continue with: python -m leap_rl resume run")
    assert out == ""


@pytest.mark.chaos
@pytest.mark.parametrize("name", ["gcs_server", "raylet"])
def test_the_supervisor_resumes_a_run_whose_cluster_is_lost(name: str, tmp_path: Path) -> None:
    calm = undisturbed(tmp_path / "calm", *OPTIONS)
    restarts = ["--runtime.trainers", "1", "--runtime.max_driver_restarts", "1"]
    quiet = ["--tracking.console", "quiet", "--run_dir", "run"]
    process = start("train", *OPTIONS, *restarts, *quiet, cwd=tmp_path)
    folder = RunFolder(tmp_path / "run")
    kill_at_work(process, name, folder)
    _, err = process.communicate(timeout=200)
    assert process.returncode == 0, err
    (line,) = err.splitlines()
    assert line.startswith("leap-rl: Ray's ")
    assert line.endswith("is gone; resuming run, restart 1 of 1")
    assert folder.read_state(1)["sha256"] == calm.read_state(1)["sha256"]
