"""The lock of a run's folder, which names the process that holds it.

    RUN/.lock    {"host": ..., "boot": ..., "pids": ..., "pid": ..., "started": ..., ...}

The operating system's lock on the file (flock) decides where it works: it ends with its process.
Some file systems have none, and some network file systems have one for each machine. There a
heartbeat decides, which a thread of the holder renews: a holder on another machine is alive if its
heartbeat is younger than a minute. Processes are identified by boot ID and PID namespace, since
copies of a machine share their host name, and containers their PIDs.
"""

from __future__ import annotations

import errno
import fcntl
import json
import os
import socket
import stat
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, fields
from datetime import datetime
from functools import cache, partial
from pathlib import Path
from typing import Any, Final

from leap_rl.core import plain_json
from leap_rl.core.regular_file import naming, read_regular
from leap_rl.storage.dataclass_from_json import dataclass_from_json

BEAT_EVERY_S: Final = 10.0
ALIVE_S: Final = 60.0
"""A holder on another machine counts as alive for this long after its last heartbeat."""

_SIZE = 512
"""Bytes of each record, padded so that a renewal is one write."""


@dataclass(frozen=True, kw_only=True)
class Holder:
    """The process that holds a lock."""

    host: str
    pid: int
    started: float
    """Unix time in seconds, as `heartbeat`."""
    heartbeat: float
    boot: str = ""
    pids: str = ""
    """PID namespace."""

    @property
    def is_on_this_machine(self) -> bool:
        return self.boot == boot_id()

    @property
    def is_known_dead(self) -> bool:
        is_visible = self.is_on_this_machine and self.pids == pid_namespace()
        return is_visible and not is_running(self.pid)

    @property
    def seems_alive(self) -> bool:
        """Whether its heartbeat is recent, by clocks that may differ, and it is not known dead."""
        return abs(time.time() - self.heartbeat) < ALIVE_S and not self.is_known_dead

    def __str__(self) -> str:
        age = max(0, round(time.time() - self.heartbeat))
        started = datetime.fromtimestamp(self.started)
        return (
            f"process {self.pid} on {self.host} (since {started:%Y-%m-%d %H:%M:%S}, last heard of "
            f"{age} s ago)"
        )


class LockedError(Exception):
    """Another process holds the lock."""

    def __init__(self, holder: Holder | None) -> None:
        super().__init__("another process" if holder is None else str(holder))


@contextmanager
def locked(path: Path, *, wait_s: float = 0.0) -> Iterator[os.stat_result]:
    """Lock a file, which is made if it is missing; yields its status, to recognize it later.

    LockedError: another process still holds it after ``wait_s``. OSError: the file cannot be
    written, is a link or no regular file, or has a second name.
    """
    until_s = time.monotonic() + wait_s
    started = time.time()
    while True:
        try:
            descriptor = _take(path, started)
            break
        except LockedError:
            if time.monotonic() >= until_s:
                raise
        time.sleep(0.1)
    ended = threading.Event()
    renew = partial(_write, descriptor, started)
    heartbeat = threading.Thread(target=beat, args=(renew, ended), name="lock", daemon=True)
    heartbeat.start()
    try:
        yield os.fstat(descriptor)
    finally:
        ended.set()
        heartbeat.join()
        with suppress(OSError):
            os.ftruncate(descriptor, 0)  # an empty record frees it for other machines
        os.close(descriptor)


def living_holder(path: Path) -> Holder | None:
    """Return the process that seems to hold a file's lock; takes no lock, writes nothing."""
    with suppress(OSError, ValueError):
        holder = holder_of(plain_json.load(read_regular(path, _SIZE)))
        return holder if holder is not None and holder.seems_alive else None
    return None


def is_at(path: Path, held: os.stat_result) -> bool:
    """Whether the file of that status, as of `locked`, is still the one at the path."""
    with suppress(FileNotFoundError):
        return os.path.samestat(held, os.stat(path, follow_symlinks=False))
    return False


def _take(path: Path, started: float) -> int:
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK, 0o644)
    try:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode) or status.st_nlink > 1:
            raise OSError(errno.EINVAL, "is no file of its own", str(path))
        with naming(path):
            _acquire(descriptor, started)
        if is_at(path, status):
            return descriptor
        raise LockedError(None)  # the file was removed, and the next process makes another
    except BaseException:
        os.close(descriptor)
        raise


def _acquire(descriptor: int, started: float) -> None:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        flocked = True
    except BlockingIOError:
        raise LockedError(_read(descriptor)) from None
    except OSError:  # a file system without flock
        flocked = False
    holder = _read(descriptor)
    # A living holder on this machine would have the flock.
    if holder is not None and holder.seems_alive and not (flocked and holder.is_on_this_machine):
        raise LockedError(holder)
    _write(descriptor, started)
    if not flocked:
        time.sleep(0.5)  # of two simultaneous writers, the last one has the lock
        holder = _read(descriptor)
        own = (boot_id(), pid_namespace(), os.getpid())
        if holder is not None and (holder.boot, holder.pids, holder.pid) != own:
            raise LockedError(holder)


@cache
def boot_id() -> str:
    """Return an ID of this machine's current boot."""
    with suppress(OSError):
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    return f"{socket.gethostname()}/{uuid.getnode():x}"  # not Linux


def pid_namespace() -> str:
    """Return an ID of this container's PIDs."""
    with suppress(OSError):
        return os.readlink("/proc/self/ns/pid")
    return ""  # not Linux


def this_process(started: float) -> Holder:
    """Return this process as the holder of a lock since ``started``, a Unix time in seconds."""
    return Holder(
        host=socket.gethostname(),
        pid=os.getpid(),
        started=started,
        heartbeat=time.time(),
        boot=boot_id(),
        pids=pid_namespace(),
    )


def is_running(pid: int) -> bool:
    """Whether this machine has a process with this PID."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except (PermissionError, OverflowError):
        pass
    return True


def beat(renew: Callable[[], object], ended: threading.Event) -> None:
    """Renew a lock every `BEAT_EVERY_S` until ``ended`` is set."""
    while not ended.wait(BEAT_EVERY_S):
        with suppress(OSError):  # a full disk, or a store that is out of reach
            renew()


def _write(descriptor: int, started: float) -> None:
    record = json.dumps(asdict(this_process(started)))
    os.pwrite(descriptor, record.encode().ljust(_SIZE - 1) + b"\n", 0)


def _read(descriptor: int) -> Holder | None:
    try:
        return holder_of(plain_json.load(os.pread(descriptor, _SIZE, 0)))
    except (OSError, ValueError):
        return None


def holder_of(record: Any) -> Holder | None:
    """Return the holder in a lock's record; None if the record is damaged."""
    try:
        named = {one.name: record[one.name] for one in fields(Holder) if one.name in record}
        holder = dataclass_from_json(Holder, named)
        str(holder)  # fails if its times are out of range
    except (TypeError, ValueError, OverflowError, OSError):
        return None
    return holder
