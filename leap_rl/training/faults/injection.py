"""Fault injection: the process that reaches a fault point for the n-th time is killed there.

`benchmarks/chaos.py` writes the plan to a file that an environment variable names; without one
nothing happens. Visits are counted over all processes of a run: each adds a byte to the fault
point's file, and the length of the file is the count.
"""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from leap_rl.training.faults.points import FaultPoint, OnFaultPoint, no_fault

PLAN_VARIABLE = "LEAP_RL_CHAOS"
"""Names the file with the plan."""


@dataclass(frozen=True, slots=True)
class FaultInjector:
    """Kills the calling process at the planned visits of fault points. Picklable.

    Args:
        folder: Where visits are counted and kills are noted; on a file system that all processes
            share.
        at: The numbers of the visits, from 1, by fault point.
    """

    folder: str
    at: Mapping[str, Sequence[int]]

    def __call__(self, point: FaultPoint) -> None:
        """Count a visit, and kill this process if it is planned."""
        number = self._count(point)
        if number in self.at.get(point, ()):
            note = Path(self.folder) / f"{point}.{number}.killed"
            note.write_text(f"{os.getpid()}\n")
            os.kill(os.getpid(), signal.SIGKILL)
            time.sleep(60.0)  # it is delivered before that

    def _count(self, point: FaultPoint) -> int:
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT
        descriptor = os.open(Path(self.folder) / f"{point}.visits", flags, 0o600)
        try:
            os.write(descriptor, b".")
            # Where this very byte ended, whoever else is writing.
            return os.lseek(descriptor, 0, os.SEEK_CUR)
        finally:
            os.close(descriptor)


def fault_injector() -> OnFaultPoint:
    """Return the fault injector of this run's plan; without one, a function that does nothing."""
    plan = os.environ.get(PLAN_VARIABLE)
    return no_fault if plan is None else FaultInjector(**json.loads(Path(plan).read_text()))
