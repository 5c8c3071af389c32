"""What was measured on, and how busy others kept it."""

from __future__ import annotations

import os
import time
from collections.abc import Iterable
from datetime import UTC, datetime
from importlib.metadata import version
from typing import Any

from leap_rl.compute.determinism import processor_kind

MB = 1e6


def circumstances() -> dict[str, Any]:
    """Return processor, versions and date, for the record."""
    packages = ("leap-rl", "torch", "ale-py", "numba")
    return {
        "processor": processor_kind(),
        "cores": len(os.sched_getaffinity(0)),
        "versions": {name.replace("-", "_"): version(name) for name in packages},
        "date": f"{datetime.now(UTC):%Y-%m-%d}",
    }


def resident_mb_of(processes: Iterable[int]) -> float:
    """Return the resident memory of processes in megabytes."""
    pages = 0
    for process in processes:
        with open(f"/proc/{process}/statm", encoding="ascii") as file:
            pages += int(file.read().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / MB


def cpu_s_of(processes: Iterable[int]) -> float:
    """Return the CPU time of living processes so far, to a clock tick (10 ms)."""
    ticks = 0
    for process in processes:
        with open(f"/proc/{process}/stat", encoding="utf-8") as file:
            # The second field, a name in brackets, may hold spaces.
            fields = file.read().rpartition(")")[2].split()
        user, system = fields[11:13]
        ticks += int(user) + int(system)
    return ticks / os.sysconf("SC_CLK_TCK")


class Quiet:
    """Measures how much of the machine others use."""

    def __init__(self) -> None:
        self._started_s = time.monotonic()
        self._busy_s = _busy_s()

    def others_share(self, own_s: float) -> float:
        """Return others' share of the machine's CPU time; ours was `own_s` since the start."""
        capacity_s = (time.monotonic() - self._started_s) * (os.cpu_count() or 1)
        others_s = _busy_s() - self._busy_s - own_s
        return min(1.0, max(0.0, others_s / capacity_s))


def _busy_s() -> float:
    with open("/proc/stat", encoding="ascii") as file:
        ticks = [int(field) for field in file.readline().split()[1:9]]
    user, nice, system, _idle, _iowait, irq, softirq, steal = ticks
    return (user + nice + system + irq + softirq + steal) / os.sysconf("SC_CLK_TCK")
