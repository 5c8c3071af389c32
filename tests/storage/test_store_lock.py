"""One driver at a time, where no lock ends with its process."""

from __future__ import annotations

import os
import time

import pytest

from leap_rl.storage import run_lock, store_lock
from leap_rl.storage.object_store import ObjectStore
from leap_rl.storage.run_lock import LockedError
from leap_rl.storage.store_lock import NAME, DeposedError, StoreLock
from tests.storage.short_runs import Become


@pytest.fixture(autouse=True)
def short(monkeypatch: pytest.MonkeyPatch) -> None:
    """Who is silent for 50 ms is dead."""
    monkeypatch.setattr(store_lock, "ALIVE_S", 0.05)
    monkeypatch.setattr(store_lock, "LOOK_EVERY_S", 0.01)
    monkeypatch.setattr(store_lock, "SETTLE_S", 0.0)


def make_lock(url: str) -> StoreLock:
    return StoreLock(ObjectStore(url))


def acquire(lock: StoreLock) -> object:
    before = lock.look()
    lock.take()
    return before


def session_of(lock: StoreLock) -> str | None:
    record = lock.read()
    return None if record is None else record.session


def write_anyhow(lock: StoreLock) -> None:
    """As where a store cannot compare."""
    lock._write(held=True, over=lock._store.tag(NAME))


def test_of_two_that_write_together_one_is_refused(any_url: str) -> None:
    first, second = make_lock(any_url), make_lock(any_url)
    second.look()
    write_anyhow(first)
    with pytest.raises(LockedError, match="on first"):
        second.take()
    first.renew()
    assert session_of(first) == first.session


def test_a_renewal_that_is_late_is_not_written_over_another(
    url: str, machine: Become, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The other one takes over after this one has looked."""
    first = make_lock(url)
    acquire(first)
    machine("second")
    second, read = make_lock(url), StoreLock.read

    def read_and_wait(self: StoreLock) -> object:
        record = read(self)
        monkeypatch.setattr(StoreLock, "read", read)
        write_anyhow(second)
        return record

    monkeypatch.setattr(StoreLock, "read", read_and_wait)
    with pytest.raises(DeposedError, match="on second"):
        first.renew()
    assert session_of(first) == second.session


def test_where_nothing_is_compared_a_renewal_that_lands_late_stops_who_took_over(
    url: str, machine: Become, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One of the two stops, and not both."""
    monkeypatch.setattr(ObjectStore, "compares", False)
    first = make_lock(url)
    acquire(first)
    late = ObjectStore(url).read(NAME)
    machine("second")
    second = make_lock(url)
    acquire(second)
    ObjectStore(url).write(NAME, late or b"")
    with pytest.raises(DeposedError, match="on first"):
        second.renew()
    first.renew()


def test_a_holder_that_gives_signs_of_life_is_left_alone(
    url: str, machine: Become, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = make_lock(url)
    assert acquire(first) is None

    def heartbeat(seconds: float) -> None:
        machine("first")
        first.renew()
        machine("second")

    machine("second")
    with monkeypatch.context() as there:
        there.setattr(time, "sleep", heartbeat)
        with pytest.raises(LockedError, match=f"process {os.getpid()} on first"):
            acquire(make_lock(url))
    assert make_lock(url).living_holder() is not None
    first.release()
    assert make_lock(url).living_holder() is None
    assert (before := make_lock(url).look()) is not None
    assert before.session == first.session


def test_a_silent_holder_is_taken_for_dead_and_finds_out(url: str, machine: Become) -> None:
    first = make_lock(url)
    acquire(first)
    machine("second")
    second = make_lock(url)
    acquire(second)
    with pytest.raises(DeposedError, match="on second"):
        first.renew()
    first.release()  # which is not its to give back
    assert second.living_holder() is not None


def test_a_process_of_this_machine_that_is_gone_needs_no_wait(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    dead = make_lock(url)
    acquire(dead)
    monkeypatch.setattr(run_lock, "is_running", lambda pid: False)

    monkeypatch.setattr(store_lock, "ALIVE_S", 1e9)
    acquire(make_lock(url))


@pytest.mark.parametrize("told_by", ["boot_id", "pid_namespace"])
def test_a_pid_of_other_processes_than_ours_tells_nothing(
    told_by: str, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A copy of this machine, under the same name, or another container on it."""
    with monkeypatch.context() as there:
        there.setattr(run_lock, told_by, lambda: "there")
        there.setattr(os, "getpid", lambda: 4_000_000)  # which no process here has
        holder = make_lock(url)
        acquire(holder)
    assert make_lock(url).living_holder() is not None

    def heartbeat(seconds: float) -> None:
        with monkeypatch.context() as there:
            there.setattr(run_lock, told_by, lambda: "there")
            holder.renew()

    monkeypatch.setattr(time, "sleep", heartbeat)
    with pytest.raises(LockedError):
        acquire(make_lock(url))


def test_who_was_silent_or_asleep_looks_before_it_writes(
    url: str, machine: Become, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = make_lock(url)
    acquire(first)
    machine("second")
    acquire(make_lock(url))
    first.confirm()  # it was renewed just now, and nobody takes over before a minute
    with_sleep = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)
    now_s = time.clock_gettime(with_sleep)
    monkeypatch.setattr(
        time, "clock_gettime", lambda clock: now_s + (30.0 if clock == with_sleep else 0.0)
    )
    with pytest.raises(DeposedError, match="on second"):
        first.confirm()


def test_of_two_that_come_together_the_last_has_it(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    second = make_lock(url)
    monkeypatch.setattr(time, "sleep", lambda seconds: write_anyhow(second))
    with pytest.raises(LockedError):
        acquire(make_lock(url))


@pytest.mark.parametrize("record", [b"", b"[]", b"{}", b'{"session": 3}', b"\xff"])
def test_a_damaged_record_is_nobodys(url: str, record: bytes) -> None:
    ObjectStore(url).write(NAME, record)
    assert acquire(make_lock(url)) is None
