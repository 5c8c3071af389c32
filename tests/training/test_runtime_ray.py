"""The Ray runtime beyond its bits: what it exposes, what it does when processes die, its memory."""

from __future__ import annotations

import os
import re
import shutil
import signal
import socket
import stat
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from benchmarks.harness.faults import visits_of, write_plan
from leap_rl.cli import EXIT_FAILED, EXIT_TERMINATED, main
from leap_rl.core import determinism
from leap_rl.core.errors import RunFailedError
from leap_rl.core.machine import descendants
from leap_rl.learners import hardware
from leap_rl.storage.checksummed_file import decode_arrays
from leap_rl.storage.run_folder import RunFolder
from leap_rl.tracking.live import LIVE, read_live
from leap_rl.training.faults import PLAN_VARIABLE, FaultInjector, FaultPoint
from leap_rl.training.runtime.ray.environment import LOCAL, make_ray_runtime
from tests.commands import Process, start, undisturbed, wait_until

BOWLS = ["--config", "debug", "--meta.meta_steps", "1"]


def train(*argv: str, cwd: Path) -> Process:
    # A TMPDIR that is too long for Ray's sockets, as on many clusters.
    environment = {**os.environ, "TMPDIR": str(cwd)}
    return start("train", *argv, "--run_dir", "run", cwd=cwd, env=environment)


def children(pid: int) -> dict[int, str]:
    """All processes below one, with their command lines."""
    found: dict[int, str] = {}
    for child in descendants(pid):
        with suppress(OSError):  # it has gone
            found[child] = Path(f"/proc/{child}/cmdline").read_text().replace("\0", " ")
    return found


def listening(pids: set[int]) -> set[str]:
    """The addresses on which some processes listen for TCP connections."""
    inodes = set()
    for pid in pids:
        for descriptor in Path(f"/proc/{pid}/fd").glob("*"):
            try:
                inodes |= set(re.findall(r"socket:\[(\d+)\]", os.readlink(descriptor)))
            except OSError:
                continue
    addresses = set()
    for table, family in (("tcp", socket.AF_INET), ("tcp6", socket.AF_INET6)):
        for line in Path(f"/proc/net/{table}").read_text().splitlines()[1:]:
            fields = line.split()
            if fields[3] == "0A" and fields[9] in inodes:
                words = bytes.fromhex(fields[1].partition(":")[0])
                packed = b"".join(words[i : i + 4][::-1] for i in range(0, len(words), 4))
                addresses.add(socket.inet_ntop(family, packed))
    return addresses


def trainers(process: Process) -> list[int]:
    return [pid for pid, line in children(process.pid).items() if "ray::TrainerActor" in line]


def at_work(folder: RunFolder) -> set[str]:
    """The trainers that hold a slot of the first round which is not complete."""
    found = set()
    for path in folder.slots(0).glob("*.lease"):
        _, header = decode_arrays(path.read_bytes())
        if not path.with_suffix(".safetensors").exists():
            found.add(header["content"]["trainer"])
    return found


def test_a_killed_trainer_changes_no_bit_and_nothing_listens_beyond_loopback(
    tmp_path: Path,
) -> None:
    # Long enough that a trainer's imports take no longer than the other's first three tasks.
    options = [*BOWLS, "--task.agent_steps", "24000"]
    calm = undisturbed(tmp_path / "calm", *options)

    process = train(*options, "--runtime.trainers", "2", cwd=tmp_path)
    folder = RunFolder(tmp_path / "run")
    wait_until(lambda: len(trainers(process)) == 2, process)
    victim = trainers(process)[0]
    family = children(process.pid)
    addresses = listening({process.pid, *family})
    (private,) = Path("/tmp").glob(f"leap_rl-{process.pid}-*")
    modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in (private, private / "token")}
    wait_until(lambda: len(at_work(folder)) == 2, process)
    os.kill(victim, signal.SIGKILL)
    out, err = process.communicate()
    assert process.returncode == 0, err
    assert out.startswith("\nMeta-trained for 1 meta-step."), out  # Ray prints nothing of its own
    assert addresses
    assert addresses <= {"127.0.0.1", "::1", "::ffff:127.0.0.1"}
    assert modes == {private.name: 0o700, "token": 0o600}

    slots = folder.read_state(1)["slots"]
    assert sorted(slot["attempt"] for slot in slots) == [1, 1, 1, 2]
    assert folder.read_state(1)["sha256"] == calm.read_state(1)["sha256"]
    assert not list(Path("/tmp").glob(f"leap_rl-{process.pid}-*")), "Ray's files are left behind"
    gone = time.monotonic() + 20
    while left := [pid for pid in family if Path(f"/proc/{pid}").exists()]:
        assert time.monotonic() < gone, [family[pid] for pid in left]
        time.sleep(0.1)


@pytest.mark.chaos
def test_the_servers_death_costs_the_open_messages_alone(tmp_path: Path) -> None:
    options = [*BOWLS, "--meta.meta_steps", "2", "--task.agent_steps", "24000"]
    calm = undisturbed(tmp_path / "calm", *options)

    seldom = ["--runtime.trainers", "2", "--runtime.snapshot_every_s", "0.5"]
    process = train(*options, *seldom, "--runtime.stream_every_s", "0.2", cwd=tmp_path)
    folder = RunFolder(tmp_path / "run")

    def server() -> list[int]:
        return [pid for pid, line in children(process.pid).items() if "ray::ServerActor" in line]

    for meta_step in (0, 1):  # once while the first is under way, once in the second
        wait_until(lambda: any(folder.slots(meta_step).glob("*.snapshot")), process)  # noqa: B023
        (victim,) = server()
        os.kill(victim, signal.SIGKILL)
        wait_until(lambda: server() not in ([], [victim]), process)  # noqa: B023
    out, err = process.communicate()
    assert process.returncode == 0, err
    assert "Traceback" not in out + err
    for number in (1, 2):
        state, expected = folder.read_state(number), calm.read_state(number)
        assert state["sha256"] == expected["sha256"]
        # Trainers went on with the next server: no attempt was lost.
        assert [slot["attempt"] for slot in state["slots"]] == [1, 1, 1, 1]


@pytest.mark.chaos
def test_another_trainer_resumes_from_the_snapshot(tmp_path: Path) -> None:
    options = [*BOWLS, "--task.agent_steps", "240000", "--meta.batch_size", "1"]
    calm = undisturbed(tmp_path / "calm", *options)
    (whole,) = calm.read_state(1)["slots"]

    often = ["--runtime.snapshot_every_s", "0.5", "--runtime.stream_every_s", "0.2"]
    process = train(*options, *often, "--runtime.trainers", "1", cwd=tmp_path)
    folder = RunFolder(tmp_path / "run")
    snapshot = folder.slot(0, 0).with_suffix(".snapshot")
    for _ in range(2):
        wait_until(snapshot.exists, process)
        time.sleep(0.3)
        (victim,) = trainers(process)
        os.kill(victim, signal.SIGKILL)
        wait_until(lambda: trainers(process) not in ([], [victim]), process)  # noqa: B023
        before = snapshot.stat().st_mtime_ns
        wait_until(lambda: not snapshot.exists() or snapshot.stat().st_mtime_ns > before, process)  # noqa: B023
    _, err = process.communicate()
    assert process.returncode == 0, err
    (slot,) = folder.read_state(1)["slots"]
    assert (whole["attempt"], slot["attempt"]) == (1, 3)
    assert folder.read_state(1)["sha256"] == calm.read_state(1)["sha256"]
    one, other = (pq.read_table(run.curves(0)).to_pydict() for run in (calm, folder))
    assert one == other


@pytest.mark.slow
def test_sigterm_costs_no_work(tmp_path: Path) -> None:
    """To a trainer, as where a machine is taken away, and to the driver."""
    options = [*BOWLS, "--task.agent_steps", "400000", "--meta.batch_size", "1"]
    calm = undisturbed(tmp_path / "calm", *options)

    never = ["--runtime.snapshot_every_s", "1000", "--runtime.stream_every_s", "0.1"]
    process = train(*options, *never, "--runtime.trainers", "1", cwd=tmp_path)
    folder = RunFolder(tmp_path / "run")
    snapshot = folder.slot(0, 0).with_suffix(".snapshot")

    def agent_steps() -> int:
        live = read_live(folder.path)
        return max((task.agent_steps for task in live.status.running), default=0) if live else 0

    wait_until(lambda: agent_steps() > 0, process)
    assert not snapshot.exists()
    (victim,) = trainers(process)
    os.kill(victim, signal.SIGTERM)
    wait_until(snapshot.exists, process)
    first = decode_arrays(snapshot.read_bytes())[1]["content"]["n"]
    wait_until(lambda: trainers(process) not in ([], [victim]), process)
    lease = folder.slot(0, 0).with_suffix(".lease")
    wait_until(lambda: decode_arrays(lease.read_bytes())[1]["content"]["attempt"] == 2, process)

    def is_seen_again() -> bool:
        later = (folder.path / LIVE).stat().st_mtime > lease.stat().st_mtime + 0.5
        return later and agent_steps() > first

    wait_until(is_seen_again, process)
    process.send_signal(signal.SIGTERM)
    _, err = process.communicate()
    assert process.returncode == EXIT_TERMINATED, err
    assert decode_arrays(snapshot.read_bytes())[1]["content"]["n"] > first
    assert main(["resume", str(folder.path), "--runtime.kind", "local"]) == 0
    (slot,) = folder.read_state(1)["slots"]
    assert slot["attempt"] == 3
    assert folder.read_state(1)["sha256"] == calm.read_state(1)["sha256"]


def test_an_address_of_the_environment_that_is_none_is_named(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("RAY_ADDRESS", "http://127.0.0.1:8265")
    with pytest.raises(
        RunFailedError, match=r"^RAY_ADDRESS = http://127\.0\.0\.1:8265: must be host"
    ):
        make_ray_runtime(trainers=1, address=None)


def test_a_cluster_that_is_not_there_is_one_line(tmp_path: Path) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{free.getsockname()[1]}"
    started = time.monotonic()
    process = train(*BOWLS, "--runtime.address", address, cwd=tmp_path)
    _, err = process.communicate()
    assert process.returncode == EXIT_FAILED, err
    assert err.splitlines()[-1].startswith(
        f"leap-rl: runtime.address = {address}: no Ray cluster answers there"
    ), err
    assert "Traceback" not in err
    assert time.monotonic() - started < 60


@pytest.mark.chaos
def test_a_killed_environment_process_costs_its_trainer_alone(tmp_path: Path) -> None:
    options = ["--task.games", '["pong"]', "--task.num_envs", "2", "--task.agent_steps", "5000"]
    options += ["--meta.meta_steps", "1", "--meta.batch_size", "1"]
    options += ["--task.atari.preset", "paper", "--tracking.console", "plain"]
    calm = undisturbed(tmp_path / "calm", *options)

    process = train(
        *options, "--runtime.trainers", "1", "--runtime.env_processes", "2", cwd=tmp_path
    )

    def environments() -> list[int]:
        return [pid for pid, line in children(process.pid).items() if "spawn_main" in line]

    wait_until(lambda: len(environments()) == 2, process)
    time.sleep(1)  # until they step; any other moment would do as well
    os.kill(environments()[0], signal.SIGKILL)
    _, err = process.communicate()
    assert process.returncode == 0, err
    state = RunFolder(tmp_path / "run").read_state(1)
    assert [slot["attempt"] for slot in state["slots"]] == [2]
    assert state["sha256"] == calm.read_state(1)["sha256"]


@pytest.mark.slow
def test_a_trainer_whose_machine_cannot_compute_the_run_does_not_join(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    # As where the run is made on a processor with such units, and its trainers have none.
    monkeypatch.setenv("ONEDNN_MAX_CPU_ISA", "AVX2")
    for module in (hardware, determinism):
        monkeypatch.setattr(module, "has_bfloat16_units", lambda: True)
    options = ["--task.kind", "catch", "--task.num_envs", "2", "--task.agent_steps", "20"]
    options = [*options, "--task.unroll_length", "1", "--runtime.trainers", "2"]
    status = main(["train", *options, "--run_dir", str(tmp_path / "run")])
    assert status == EXIT_FAILED
    last = capsys.readouterr().err.splitlines()[-1]
    assert re.match(r"leap-rl: trainer-\d cannot join: agent.precision = bfloat16: .*float32", last)


# -- memory ---------------------------------------------------------------------------------------

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


def test_the_object_store_grows_with_the_trainers_within_shared_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_ray_runtime(trainers=1, address=LOCAL)
    from leap_rl.training.runtime.ray import runtime
    from leap_rl.training.runtime.ray.runtime import store_bytes

    def has(free: int, memory: int = 1000 * 2**30) -> None:
        usage = shutil.disk_usage(tmp_path)._replace(free=free)
        monkeypatch.setattr(shutil, "disk_usage", lambda _: usage)
        monkeypatch.setattr(runtime, "estimate_available_memory", lambda: memory)

    has(100 * 2**30)
    assert [store_bytes(n, tmp_path) >> 20 for n in (2, 16, 128)] == [512, 1024, 8192]
    has(2**30)
    assert store_bytes(128, tmp_path) == 2**30 * 9 // 10
    has(100 * 2**30, memory=4 * 2**30)  # a container on a large machine
    assert store_bytes(128, tmp_path) == 4 * 2**30 * 3 // 10
    has(64 * 2**20)  # Docker's own
    assert store_bytes(128, tmp_path) >> 20 == 512
    assert store_bytes(128, tmp_path / "no shared memory") >> 20 == 512
