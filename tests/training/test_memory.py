"""A run's processes take no more memory as it goes on."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from pathlib import Path

import pytest

from benchmarks.harness.faults import visits_of, write_plan
from leap_rl.core.machine import descendants
from leap_rl.storage.run_folder import RunFolder
from leap_rl.training.faults import PLAN_VARIABLE, FaultInjector, FaultPoint

MIB = 2**20
ROLES = ("ray::ServerActor", "ray::TrainerActor")


def resident_bytes(driver: int) -> dict[str, int]:
    """The resident memory of driver, server and each trainer, and the object store's."""
    found = {"driver": own_bytes(driver)}
    for pid in descendants(driver):
        try:
            line = Path(f"/proc/{pid}/cmdline").read_text().replace("\0", " ")
            for role in ROLES:
                if role in line:
                    found[f"{role} {pid}"] = own_bytes(pid)
            if "raylet/raylet " in line:
                found["object store"] = stored_bytes(pid)
        except OSError:
            continue
    return found


def own_bytes(pid: int) -> int:
    """A process's resident memory without what it maps of the object store."""
    status = Path(f"/proc/{pid}/status").read_text()
    kinds = re.findall(r"^Rss(?:Anon|File):\s+(\d+) kB$", status, re.MULTILINE)
    assert len(kinds) == 2
    return 1024 * sum(map(int, kinds))


def stored_bytes(raylet: int) -> int:
    """What the object store's files, deleted since they were mapped, take of memory."""
    files = {}
    for descriptor in Path(f"/proc/{raylet}/fd").iterdir():
        if "plasma" in os.readlink(descriptor) and "deleted" in os.readlink(descriptor):
            status = os.stat(descriptor)
            files[status.st_ino] = 512 * status.st_blocks
    assert files
    return sum(files.values())


@pytest.mark.chaos
@pytest.mark.timeout(900)
def test_meta_steps_and_streams_leave_nothing_behind(tmp_path: Path) -> None:
    counting = FaultInjector(str(tmp_path / "fault_points"), {})
    write_plan(counting, tmp_path / "plan.json")
    words = [sys.executable, "-m", "leap_rl", "train", "--config", "debug"]
    words += ["--meta.meta_steps", "52", "--task.agent_steps", "2400", "--runtime.trainers", "2"]
    words += ["--runtime.stream_every_s", "0.004", "--runtime.snapshot_every_s", "0.1"]
    log = tmp_path / "log"
    with open(log, "wb") as output:
        process = subprocess.Popen(
            [*words, "--run_dir", "run", "--tracking.console", "plain"],
            cwd=tmp_path,
            # Ray makes its workers nice, which starve where others are at work too.
            env={
                **os.environ,
                PLAN_VARIABLE: str(tmp_path / "plan.json"),
                "RAY_worker_niceness": "0",
            },
            stdout=output,
            stderr=output,
        )
    measured: dict[int, dict[str, int]] = {}
    folder = RunFolder(tmp_path / "run")
    try:
        for meta_step in (10, 50):
            while not folder.exists() or (folder.latest() or 0) < meta_step:
                assert process.poll() is None, log.read_text()
                time.sleep(0.02)
            measured[meta_step] = resident_bytes(process.pid)
        assert process.wait(timeout=200) == 0, log.read_text()
    finally:
        process.kill()
        process.wait()
    visits = visits_of(counting)
    streams = visits[FaultPoint.SERVER_STREAMING]
    assert streams >= 2000, visits
    assert visits[FaultPoint.SERVER_SNAPSHOTTING] >= 50
    early, late = measured[10], measured[50]
    assert len(early) == 5, early  # driver, server, two trainers, store
    grown = {name: (late[name] - early[name]) / MIB for name in early}
    print(f"\n{streams} streams; grown by MiB: {grown}; at first {early}")
    assert sum(grown.values()) < 16, grown
    assert max(grown.values()) < 16, grown
