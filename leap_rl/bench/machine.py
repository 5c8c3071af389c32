"""What was measured on, and how busy others kept it."""

from __future__ import annotations

import os
import time
from datetime import UTC, datetime
from importlib.metadata import version
from typing import Any

from leap_rl.core.determinism import processor_kind
from leap_rl.core.machine import busy_s, cores

MB = 1e6


def circumstances() -> dict[str, Any]:
    """Return processor, versions and date, for the record."""
    packages = ("leap-rl", "torch", "ale-py", "numba")
    return {
        "processor": processor_kind(),
        "cores": cores(),
        "versions": {name.replace("-", "_"): version(name) for name in packages},
        "date": f"{datetime.now(UTC):%Y-%m-%d}",
    }


class Quiet:
    """Measures how much of the machine others use."""

    def __init__(self) -> None:
        self._started_s = time.monotonic()
        self._busy_s = busy_s()

    def others_share(self, own_s: float) -> float:
        """Return others' share of the machine's CPU time; ours was `own_s` since the start."""
        capacity_s = (time.monotonic() - self._started_s) * (os.cpu_count() or 1)
        others_s = busy_s() - self._busy_s - own_s
        return min(1.0, max(0.0, others_s / capacity_s))
