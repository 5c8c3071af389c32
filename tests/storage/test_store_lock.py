"""One driver at a time, where no lock ends with its process."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from leap_rl.run_lock import LockedError
from leap_rl.storage.object_store import ObjectStore
from leap_rl.storage.store_lock import NAME, DeposedError, StoreLock, living

Become = Callable[[str], Path]


def make_lock(url: str, *, sleep: Callable[[float], None] = lambda seconds: None) -> StoreLock:
    return StoreLock(ObjectStore(url), say=lambda line: None, sleep=sleep, alive_s=0.05)


def test_a_holder_that_gives_signs_of_life_is_left_alone(url: str, machine: Become) -> None:
    first = make_lock(url)
    assert first.acquire() is None

    def beat(seconds: float) -> None:
        machine("first")
        first.renew()
        machine("second")

    machine("second")
    with pytest.raises(LockedError, match=f"process {os.getpid()} on first"):
        make_lock(url, sleep=beat).acquire()
    assert living(make_lock(url)) is not None
    first.release()
    assert living(make_lock(url)) is None
    before = make_lock(url).acquire()
    assert before is not None
    assert before.session == first.session


def test_a_silent_holder_is_taken_for_dead_and_finds_out(url: str, machine: Become) -> None:
    first = make_lock(url)
    first.acquire()
    machine("second")
    second = make_lock(url)
    second.acquire()
    with pytest.raises(DeposedError, match="on second"):
        first.renew()
    first.release()  # which is not its to give back
    assert living(second) is not None


def test_a_process_of_this_machine_that_is_gone_needs_no_wait(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    dead = make_lock(url)
    dead.acquire()
    monkeypatch.setattr("leap_rl.storage.store_lock.is_running", lambda pid: False)

    def no_wait(seconds: float) -> None:
        assert seconds < 1.0

    make_lock(url, sleep=no_wait).acquire()


def test_of_two_that_come_together_the_last_has_it(url: str) -> None:
    first, second = make_lock(url), make_lock(url)
    late = StoreLock(
        ObjectStore(url), say=lambda line: None, sleep=lambda seconds: second._write(held=True)
    )
    with pytest.raises(LockedError):
        late.acquire()
    assert first.read() is not None


@pytest.mark.parametrize("record", [b"", b"[]", b"{}", b'{"session": 3}', b"\xff"])
def test_a_damaged_record_is_nobodys(url: str, record: bytes) -> None:
    ObjectStore(url).write(NAME, record)
    assert make_lock(url).acquire() is None
