"""Cores, memory, CPU time and processes of this machine, on any operating system."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

import psutil


def cores() -> int:
    """Return how many cores this process may use."""
    process = psutil.Process()
    if hasattr(process, "cpu_affinity"):  # not on macOS
        return len(process.cpu_affinity())
    return psutil.cpu_count() or 1


def memory() -> tuple[int, int]:
    """Return the bytes of memory in all, and those that are free for new processes."""
    found = psutil.virtual_memory()
    return found.total, found.available


def resident_bytes(processes: Iterable[int]) -> int:
    """Return the resident memory of processes in bytes."""
    return sum(psutil.Process(process).memory_info().rss for process in processes)


def cpu_s(processes: Iterable[int]) -> float:
    """Return the CPU time of living processes so far, to a clock tick (10 ms)."""
    times = [psutil.Process(process).cpu_times() for process in processes]
    return float(sum(each.user + each.system for each in times))


def busy_s() -> float:
    """Return the CPU time of all cores since the machine started, waiting left out."""
    times = psutil.cpu_times()._asdict()
    # Linux counts guests twice: their time is in the user's too.
    left_out = ("idle", "iowait", "guest", "guest_nice")
    return float(sum(times.values()) - sum(times.get(name, 0.0) for name in left_out))


def descendants(process: int) -> list[int]:
    """Return the living processes that a process started, and theirs."""
    try:
        return [each.pid for each in psutil.Process(process).children(recursive=True)]
    except psutil.Error:  # it has gone
        return []


def kill_children_from(folder: Path) -> None:
    """Kill the processes that this one started and whose program lies in a folder."""
    folder = folder.resolve()
    for child in psutil.Process().children():
        with suppress(psutil.Error, OSError):  # it has gone
            if folder in Path(child.exe()).parents:
                child.kill()


def kill_children_named(name: str) -> None:
    """Kill the processes that this one started and that have a name."""
    for child in psutil.Process().children():
        with suppress(psutil.Error):  # it has gone
            if child.name() == name:
                child.kill()


def kill_descendants(process: int) -> None:
    """Kill the processes that a process started, and theirs."""
    for descendant in descendants(process):
        with suppress(OSError):
            os.kill(descendant, signal.SIGKILL)
