"""What a figure was measured on, and how quiet it was there."""

from __future__ import annotations

import os
import time
from datetime import UTC, datetime
from importlib.metadata import version
from typing import Any

from leap_rl.determinism import processor_kind

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


def resident_mb() -> float:
    """Return this process's resident memory in megabytes."""
    with open("/proc/self/statm", encoding="ascii") as file:
        pages = int(file.read().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / MB


class Quiet:
    """Watches how much of the machine others use: a figure taken in company is too low."""

    def __init__(self) -> None:
        self._started_s = time.monotonic()
        self._busy_s = _busy_s()

    def others_share(self, own_s: float) -> float:
        """Return the share of the machine's CPU time since the start that was not ours.

        Args:
            own_s: CPU time of our own processes in that time.
        """
        capacity_s = (time.monotonic() - self._started_s) * (os.cpu_count() or 1)
        others_s = _busy_s() - self._busy_s - own_s
        return min(1.0, max(0.0, others_s / capacity_s))


def _busy_s() -> float:
    """Return the CPU time that all processors together have worked for, or that was stolen."""
    with open("/proc/stat", encoding="ascii") as file:
        ticks = [int(field) for field in file.readline().split()[1:9]]
    user, nice, system, _idle, _iowait, irq, softirq, steal = ticks
    return (user + nice + system + irq + softirq + steal) / os.sysconf("SC_CLK_TCK")
