"""Runs over several hosts, which die, are cut off, come back, join and leave."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from benchmarks.harness.differences import differences
from leap_rl.cli import EXIT_FAILED
from leap_rl.storage.checksummed_file import ChecksumError, decode_arrays
from leap_rl.storage.run_folder import RunFolder
from tests.commands import undisturbed
from tests.training.hosts import PORT, Host, hosts, why_not

BOWLS = ["--config", "debug", "--task.agent_steps", "40000"]
OFTEN = ["--runtime.stream_every_s", "0.2", "--runtime.snapshot_every_s", "0.5"]
LEASE_S = 6.0
CLOCK_TICKS = os.sysconf("SC_CLK_TCK")

pytestmark = [
    pytest.mark.chaos,
    pytest.mark.timeout(600),
    pytest.mark.skipif(why_not() is not None, reason=f"{why_not()}"),
]


class Drive:
    """A run whose driver works on a host, and whose files are looked at meanwhile."""

    def __init__(self, host: Host, cwd: Path, *options: str, **environment: str) -> None:
        self.folder = RunFolder(cwd / "run")
        self._log = cwd / "driver.log"
        words = [sys.executable, "-m", "leap_rl", "train", *options, "--run_dir", "run"]
        words += ["--runtime.address", f"10.77.0.1:{PORT}", "--tracking.console", "plain"]
        with open(self._log, "wb") as log:
            self._process = subprocess.Popen(
                host.words(*words),
                cwd=cwd,
                env={**host.environment, **environment},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )

    @property
    def log(self) -> str:
        return self._log.read_text()

    def until(self, condition: Callable[[], Any], within_s: float = 180.0) -> Any:
        deadline = time.monotonic() + within_s
        while not (found := condition()):
            assert self._process.poll() is None, self.log
            assert time.monotonic() < deadline, self.log
            time.sleep(0.02)
        return found

    def end(self, status: int = 0) -> None:
        assert self._process.wait(timeout=200) == status, self.log
        assert "Traceback" not in self.log

    def leases(self) -> dict[tuple[int, int], tuple[int, str]]:
        """Attempt and trainer of the open rounds' slots, by round and slot."""
        found = {}
        for path in self.folder.path.glob("slots/[0-9]*/*.lease"):
            try:
                content = decode_arrays(path.read_bytes())[1]["content"]
            except (OSError, ChecksumError):
                continue  # its round was closed just now
            found[int(path.parent.name), int(path.stem)] = content["attempt"], content["trainer"]
        return found

    def stop(self) -> None:
        if self._process.poll() is None:
            self._process.kill()
            self._process.wait()

    def snapshotted(self) -> set[tuple[int, int]]:
        """Round and slot of the tasks that have a snapshot."""
        paths = self.folder.path.glob("slots/[0-9]*/*.snapshot")
        return {(int(path.parent.name), int(path.stem)) for path in paths}


@pytest.fixture
def drive(tmp_path: Path) -> Iterator[Callable[..., Drive]]:
    drives: list[Drive] = []

    def start(host: Host, *options: str, **environment: str) -> Drive:
        drives.append(Drive(host, tmp_path, *options, **environment))
        return drives[-1]

    yield start
    for one in drives:
        one.stop()


def seconds_of_work(host: Host) -> float:
    """The processor time that a host's trainers have used."""
    total = 0
    for pid in host.processes("ray::TrainerActor"):
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        total += int(fields[11]) + int(fields[12])
    return total / CLOCK_TICKS


def busiest(some: list[Host], within_s: float = 1.0) -> Host:
    before = [seconds_of_work(host) for host in some]
    time.sleep(within_s)
    worked = [seconds_of_work(host) - used for host, used in zip(some, before, strict=True)]
    return some[worked.index(max(worked))]


def reassigned(
    run: Drive, before: dict[tuple[int, int], tuple[int, str]]
) -> tuple[tuple[int, int], str] | None:
    """The slot that another trainer got since, and who had it."""
    now = run.leases()
    for place, (attempt, trainer) in before.items():
        if place in now and now[place][0] > attempt:
            return place, trainer
    return None


def test_a_host_that_is_cut_off_and_comes_back_and_one_that_dies_change_no_bit(
    tmp_path: Path, drive: Callable[..., Drive], capsys: pytest.CaptureFixture[str]
) -> None:
    # One trainer more than a round has slots: a slot that is free finds somebody at once.
    options = [*BOWLS, "--meta.batch_size", "2", "--meta.meta_steps", "6"]
    expected = undisturbed(tmp_path / "calm", *options)
    with hosts(3) as (head, *workers):
        for host in (head, *workers):
            host.start_ray("--num-cpus=1")
        seldom = ["--runtime.lease_s", str(LEASE_S), "--runtime.trainers", "3"]
        run = drive(head, *options, *OFTEN, *seldom)
        run.until(lambda: all(host.processes("ray::TrainerActor") for host in (head, *workers)))
        run.until(lambda: run.snapshotted() >= {(0, 0), (0, 1)})
        victim = busiest(workers)
        before, (pid,) = run.leases(), victim.processes("ray::TrainerActor")

        victim.cut()
        cut_s = time.monotonic()
        place, trainer = run.until(lambda: reassigned(run, before))
        noticed_s = time.monotonic() - cut_s
        assert 0.5 * LEASE_S < noticed_s < 2 * LEASE_S
        time.sleep(1.0)  # it is gone for longer than its lease
        victim.heal()

        def has_work_again() -> bool:
            return any(now != place and who == trainer for now, (_, who) in run.leases().items())

        run.until(has_work_again)
        assert victim.processes("ray::TrainerActor") == [pid]  # the same life, told to abandon

        # Whoever of the two works now dies, with all that its host runs.
        meta_step = run.folder.latest() or 0
        run.until(lambda: {(meta_step + 1, 0), (meta_step + 1, 1)} <= run.snapshotted())
        victim, before = busiest(workers), run.leases()
        victim.kill()
        killed_s = time.monotonic()
        run.until(lambda: reassigned(run, before))
        died_s = time.monotonic() - killed_s
        assert died_s < LEASE_S
        run.end()
    assert differences(expected, run.folder) == []
    with capsys.disabled():
        print(f"\ncut off: noticed after {noticed_s:.1f} s; killed: after {died_s:.1f} s")


def test_trainers_join_and_leave_with_their_hosts(
    tmp_path: Path, drive: Callable[..., Drive]
) -> None:
    options = [*BOWLS, "--meta.batch_size", "3", "--meta.meta_steps", "4"]
    expected = undisturbed(tmp_path / "calm", *options)
    with hosts(3) as (head, leaves, joins):
        for host in (head, leaves):
            host.start_ray("--num-cpus=1")
        run = drive(head, *options, *OFTEN, "--runtime.lease_s", "60")
        run.until(lambda: len(run.snapshotted()) == 2)
        trainers = {who for _, who in run.leases().values()}
        assert trainers == {"trainer-0", "trainer-1"}

        joins.start_ray("--num-cpus=1")
        run.until(lambda: "trainer-2" in {who for _, who in run.leases().values()})
        assert joins.processes("ray::TrainerActor")

        leaves.kill()
        run.end()
        assert not leaves.processes()
    assert differences(expected, run.folder) == []
    who = {slot["trainer"] for n in range(1, 5) for slot in run.folder.read_state(n)["slots"]}
    assert "trainer-2" in who


@pytest.mark.parametrize(
    ("here", "says"),
    [
        ("token", "the cluster asks for no token"),
        ("disabled", "RAY_AUTH_MODE is disabled here"),
    ],
)
def test_a_cluster_that_asks_for_no_token_is_not_joined(
    tmp_path: Path, drive: Callable[..., Drive], here: str, says: str
) -> None:
    with hosts(1) as (head,):
        head.start_ray("--num-cpus=1", RAY_AUTH_MODE="disabled")
        run = drive(head, *BOWLS, RAY_AUTH_MODE=here)
        run.end(status=EXIT_FAILED)
        assert not head.processes("ray::TrainerActor")
        assert not head.processes("ray::ServerActor")
    last = run.log.splitlines()[-1]
    assert last.startswith(f"leap-rl: runtime.address = 10.77.0.1:{PORT}: "), run.log
    assert says in last
    assert "RAY_AUTH_MODE=token" in last
