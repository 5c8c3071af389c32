"""One process at a time works in a run's folder, and says who it is."""

from __future__ import annotations

import errno
import fcntl
import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path

import pytest

from leap_rl.storage import run_lock
from leap_rl.storage.run_lock import LockedError, locked

HERE = socket.gethostname()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / ".lock"


@pytest.fixture
def without_flock(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(descriptor: int, operation: int) -> None:
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    monkeypatch.setattr(fcntl, "flock", refuse)
    monkeypatch.setattr(time, "sleep", lambda seconds: None)


def record(path: Path, *, age_s: float = 0.0, **holder: object) -> None:
    then = time.time() - age_s
    times = {"started": then, "heartbeat": then}
    path.write_text(json.dumps({"host": "elsewhere", "pid": 7, **times, **holder}))


def here() -> dict[str, str]:
    return {"host": HERE, "boot": run_lock.boot_id(), "pids": run_lock.pid_namespace()}


@contextmanager
def another_process(path: Path) -> Iterator[subprocess.Popen[bytes]]:
    code = (
        "import sys; from pathlib import Path; from leap_rl.storage.run_lock import locked\n"
        f"with locked(Path({str(path)!r})): print('held', flush=True); sys.stdin.read()"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert process.stdout is not None
    assert process.stdout.readline() == b"held\n"
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def test_the_second_is_told_who_the_first_is(path: Path) -> None:
    with (
        another_process(path) as process,
        pytest.raises(LockedError, match=rf"^process {process.pid} on {HERE} \(since 2"),
        locked(path),
    ):
        pass


def test_a_process_that_was_killed_holds_nothing(path: Path) -> None:
    with another_process(path):
        pass
    assert json.loads(path.read_bytes())["host"] == HERE
    with locked(path):
        assert json.loads(path.read_bytes())["pid"] == os.getpid()
    assert path.read_bytes() == b""


def test_who_works_on_is_heard_of(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run_lock, "BEAT_EVERY_S", 0.01)
    with locked(path):
        before = json.loads(path.read_bytes())
        deadline = time.monotonic() + 5
        while json.loads(path.read_bytes())["heartbeat"] == before["heartbeat"]:
            assert time.monotonic() < deadline
        assert json.loads(path.read_bytes())["started"] == before["started"]


@pytest.mark.parametrize("flock", ["on each machine", "nowhere"])
@pytest.mark.parametrize(
    ("age_s", "is_alive"), [(5, True), (-5, True), (run_lock.ALIVE_S + 1, False)]
)
def test_another_machine_is_alive_while_its_heartbeat_is_recent(
    path: Path, flock: str, age_s: float, is_alive: bool, request: pytest.FixtureRequest
) -> None:
    if flock == "nowhere":
        request.getfixturevalue("without_flock")
    record(path, age_s=age_s)
    is_refused = pytest.raises(LockedError, match="process 7 on elsewhere")
    with is_refused if is_alive else nullcontext(), locked(path):
        pass


def test_a_container_that_was_restarted_needs_no_wait(path: Path) -> None:
    record(path, **{**here(), "pids": "of the one before"}, pid=1)
    with locked(path):
        pass


TOO_LATE = b'{"host": "x", "pid": 1, "started": 1e300, "heartbeat": 0}'


@pytest.mark.parametrize(
    "content",
    [b"", b"{", b"\xff\xfe", b"[]", b'{"host": 1}', b'{"host": "x", "pid": 1e999}', TOO_LATE],
)
def test_a_damaged_record_is_nobodys(path: Path, content: bytes) -> None:
    path.write_bytes(content)
    with locked(path):
        assert json.loads(path.read_bytes())["pid"] == os.getpid()


def test_a_file_that_was_removed_while_it_was_locked_is_no_lock(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    flock = fcntl.flock

    def remove_and_flock(descriptor: int, operation: int) -> None:
        path.unlink()
        flock(descriptor, operation)

    monkeypatch.setattr(fcntl, "flock", remove_and_flock)
    with pytest.raises(LockedError), locked(path):
        pass


@pytest.mark.parametrize("kind", ["link", "hard link", "pipe"])
def test_what_is_no_file_of_its_own_is_no_lock(path: Path, kind: str) -> None:
    victim = path.with_name("victim")
    victim.write_bytes(b"precious")
    make = {"link": os.symlink, "hard link": os.link, "pipe": lambda _, to: os.mkfifo(to)}[kind]
    make(victim, path)
    with pytest.raises(OSError, match=r"is no file of its own|symbolic links"), locked(path):
        pass
    assert victim.read_bytes() == b"precious"
    assert run_lock.living_holder(path) is None  # and nobody waits for what a pipe may say


@pytest.mark.usefixtures("without_flock")
def test_without_flock_a_dead_process_of_this_machine_is_known(path: Path) -> None:
    with subprocess.Popen([sys.executable, "-c", ""]) as process:
        pass
    record(path, **here(), pid=process.pid)
    with locked(path):
        pass
    record(path, **here(), pid=os.getppid())
    with pytest.raises(LockedError, match=rf"process {os.getppid()} on"), locked(path):
        pass


@pytest.mark.parametrize("other", ["boot", "pids"])
@pytest.mark.usefixtures("without_flock")
def test_without_flock_a_pid_of_other_processes_tells_nothing(path: Path, other: str) -> None:
    """Of a copy of this machine, under the same name, or of another container on it."""
    with subprocess.Popen([sys.executable, "-c", ""]) as process:
        pass
    record(path, **{**here(), other: "another"}, pid=process.pid)
    with pytest.raises(LockedError, match=f"process {process.pid} on {HERE}"), locked(path):
        pass
    assert run_lock.living_holder(path) is not None


@pytest.mark.usefixtures("without_flock")
def test_without_flock_the_last_of_two_at_a_time_has_it(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(time, "sleep", lambda seconds: record(path))  # the other comes just now
    with pytest.raises(LockedError, match="elsewhere"), locked(path):
        pass
