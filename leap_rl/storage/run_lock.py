"""The lock of a run's folder: one process at a time works there, and it says who it is.

    RUN/.lock    {"host": ..., "boot": ..., "pids": ..., "pid": ..., "started": ..., ...}

The operating system's lock on the file (flock) decides wherever it can be trusted: it ends with the
process that held it. Some file systems have no such lock, and some network file systems have it for
one machine alone. There the heartbeat decides, which a thread of the holder renews: a holder on
another machine is alive if its heartbeat is younger than a minute. So after a crash another machine
may have to wait for a minute. Clocks that are apart by more than that, and a holder that was
suspended for longer, cannot be told from a death. Processes are identified by boot ID and PID
namespace, since copies of a machine share their host name and containers their process IDs.
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
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, fields
from datetime import datetime
from functools import cache
from pathlib import Path
from typing import Any, Final

from leap_rl.storage.links import naming

BEAT_EVERY_S: Final = 10.0
ALIVE_S: Final = 60.0
"""A holder on another machine is alive for this long after its last heartbeat."""

_KINDS: Final[dict[str, tuple[type, ...]]] = {
    **dict.fromkeys(("host", "boot", "pids"), (str,)),
    **dict.fromkeys(("started", "heartbeat"), (int, float)),
    "pid": (int,),
}
"""What a record holds."""

_SIZE = 512
"""Bytes of the record: always as many, so that a renewal is one write over the last one."""


@dataclass(frozen=True, kw_only=True)
class Holder:
    """The process that holds a lock."""

    host: str
    pid: int
    started: float
    """Unix seconds, as the heartbeat."""
    heartbeat: float
    boot: str = ""
    """What :func:`boot_id` gave it; nothing in records of older versions."""
    pids: str = ""
    """What :func:`pid_namespace` gave it."""

    @property
    def is_on_this_machine(self) -> bool:
        """Whether it runs, or ran, on this start of this machine."""
        return self.boot == boot_id()

    @property
    def is_known_dead(self) -> bool:
        """Whether its pid is this system's to know, and of no process any more."""
        is_visible = self.is_on_this_machine and self.pids == pid_namespace()
        return is_visible and not is_running(self.pid)

    def heard_within(self, seconds: float) -> bool:
        """Whether its heartbeat is that young; clocks may differ either way."""
        return abs(time.time() - self.heartbeat) < seconds

    def __str__(self) -> str:
        age = max(0, round(time.time() - self.heartbeat))
        started = datetime.fromtimestamp(self.started)
        return (
            f"process {self.pid} on {self.host} (since {started:%Y-%m-%d %H:%M:%S}, last heard of "
            f"{age} s ago)"
        )


class LockedError(Exception):
    """Somebody else holds the lock."""

    def __init__(self, holder: Holder | None) -> None:
        super().__init__("another process" if holder is None else str(holder))
        self.holder = holder


@contextmanager
def locked(path: Path) -> Iterator[os.stat_result]:
    """Hold the lock of a file, which is made if it is missing.

    Yields:
        Which file it is: its path may come to name another one.

    Raises:
        LockedError: Another process holds it.
        OSError: The file cannot be written, or is a link, has another name, or is no file.
    """
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK, 0o644)
    try:
        started = time.time()
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode) or status.st_nlink > 1:
            raise OSError(errno.EINVAL, "is no file of its own", str(path))
        with naming(path):
            _acquire(descriptor, started)
        _see_that_it_is_there(path, status)
        ended = threading.Event()
        heartbeat = threading.Thread(
            target=_beat, args=(descriptor, started, ended), name="lock", daemon=True
        )
        heartbeat.start()
        try:
            yield status
        finally:
            ended.set()
            heartbeat.join()
            with suppress(OSError):
                os.ftruncate(descriptor, 0)  # nobody's, at once and for every machine
    finally:
        os.close(descriptor)


def _see_that_it_is_there(path: Path, held: os.stat_result) -> None:
    """Refuse a lock whose file was removed before it was taken: the next one makes another."""
    with suppress(FileNotFoundError):
        if os.path.samestat(held, os.stat(path, follow_symlinks=False)):
            return
    raise LockedError(None)


def living_holder(path: Path) -> Holder | None:
    """Return who holds the lock of a file, as the file says; takes no lock and writes nothing.

    Returns:
        None where nobody does, or who did has died or was not heard of for a minute.
    """
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError:
        return None
    try:
        holder = _read(descriptor)
    finally:
        os.close(descriptor)
    if holder is None or not holder.heard_within(ALIVE_S):
        return None
    return None if holder.is_known_dead else holder


def _acquire(descriptor: int, started: float) -> None:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        flocked = True
    except BlockingIOError:
        raise LockedError(_read(descriptor)) from None
    except OSError:  # a file system without such locks
        flocked = False
    holder = _read(descriptor)
    if holder is not None and _is_alive(holder, flocked=flocked):
        raise LockedError(holder)
    _write(descriptor, started)
    if not flocked:
        # Of two that come at the same time, the one that wrote last has it.
        time.sleep(0.5)
        holder = _read(descriptor)
        if holder is not None and not _is_own(holder):
            raise LockedError(holder)


def _is_alive(holder: Holder, *, flocked: bool) -> bool:
    if _is_own(holder) or holder.is_known_dead:
        return False
    if holder.is_on_this_machine and flocked:
        return False  # the system knows of the locks of its own machine
    return holder.heard_within(ALIVE_S)


def _is_own(holder: Holder) -> bool:
    return (holder.boot, holder.pids, holder.pid) == (boot_id(), pid_namespace(), os.getpid())


@cache
def boot_id() -> str:
    """Return what tells this machine, since it was started, from every other."""
    with suppress(OSError):
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    return f"{socket.gethostname()}/{uuid.getnode():x}"  # not Linux


def pid_namespace() -> str:
    """Return what tells the processes that are numbered with this one from other containers'."""
    with suppress(OSError):
        return os.readlink("/proc/self/ns/pid")
    return ""  # not Linux


def this_process(started: float) -> Holder:
    """Return this process as the holder of a lock since ``started``, in Unix seconds."""
    return Holder(
        host=socket.gethostname(),
        pid=os.getpid(),
        started=started,
        heartbeat=time.time(),
        boot=boot_id(),
        pids=pid_namespace(),
    )


def is_running(pid: int) -> bool:
    """Whether this machine has such a process."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except (PermissionError, OverflowError):
        pass
    return True


def _beat(descriptor: int, started: float, ended: threading.Event) -> None:
    while not ended.wait(BEAT_EVERY_S):
        with suppress(OSError):  # a disk that is full or away for a moment
            _write(descriptor, started)


def _write(descriptor: int, started: float) -> None:
    record = json.dumps(asdict(this_process(started)))
    os.pwrite(descriptor, record.encode().ljust(_SIZE - 1) + b"\n", 0)


def _read(descriptor: int) -> Holder | None:
    """Return who holds the lock, or none where the record is empty or damaged."""
    try:
        return holder_of(json.loads(os.pread(descriptor, _SIZE, 0)))
    except (OSError, ValueError):
        return None


def holder_of(record: object) -> Holder | None:
    """Return who holds a lock by what is written in it, or none where that cannot be."""
    if not isinstance(record, dict):
        return None
    values: dict[str, Any] = {one.name: record.get(one.name, one.default) for one in fields(Holder)}
    if not all(isinstance(values[name], kind) for name, kind in _KINDS.items()):
        return None
    try:
        holder = Holder(**values)
        str(holder)
    except (ValueError, OverflowError, OSError):  # times out of all range
        return None
    return holder
