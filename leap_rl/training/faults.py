"""Fault injection: processes are killed at fault points, named moments of a run.

The code calls `on_fault_point` at each; in a usual run that does nothing. `benchmarks/chaos.py`
writes a plan to a file that an environment variable names: the process that reaches a fault point
for the n-th time is killed there. Visits are counted over all processes of a run: each adds a byte
to the fault point's file, and the length of the file is the count.
"""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Final, TypeAlias

from leap_rl.core.machine import kill_children_named

PLAN_VARIABLE = "LEAP_RL_CHAOS"
"""Names the file with the plan."""


class FaultPoint(StrEnum):
    """A process's role, and what it has just done or is about to do."""

    TRAINER_CLAIMING = "trainer.claiming"
    """About to ask for work."""
    TRAINER_CLAIMED = "trainer.claimed"
    """Has work, and has not begun with it."""
    TRAINER_TRAINING = "trainer.training"
    """Has made an update."""
    TRAINER_STREAMING = "trainer.streaming"
    """Has sent a sum so far, and has no answer yet."""
    TRAINER_SNAPSHOTTING = "trainer.snapshotting"
    """Has sent a snapshot, and has no answer yet."""
    TRAINER_COMPLETING = "trainer.completing"
    """About to send the whole sum."""
    TRAINER_COMPLETED = "trainer.completed"
    """Has been told that it counts."""

    SERVER_CLAIMING = "server.claiming"
    """Has a lease on disk, and has not answered."""
    SERVER_STREAMING = "server.streaming"
    """Has taken in a sum so far, and has not answered."""
    SERVER_SNAPSHOTTING = "server.snapshotting"
    """Has a snapshot on disk, and has not answered."""
    SERVER_COMPLETING = "server.completing"
    """Has a whole sum on disk, and has not answered."""
    SERVER_STEPPING = "server.stepping"
    """Has averaged and taken the outer step, and has written nothing of it."""
    SERVER_WRITING = "server.writing"
    """Has the checkpoint on disk, and `latest` still points to the one before."""
    SERVER_COMMITTED = "server.committed"
    """Has closed the round, and has not opened the next one."""
    SERVER_RESUMING = "server.resuming"
    """Folder loaded, no request handled yet."""

    DRIVER_STARTING = "driver.starting"
    """Has the run's folder, and has started nothing."""
    DRIVER_SUPERVISING = "driver.supervising"
    """Has heard how the run stands."""
    DRIVER_REPLACING = "driver.replacing"
    """Has seen a trainer die, and has done nothing about it."""
    DRIVER_LOGGING = "driver.logging"
    """Has seen a round committed, and has logged nothing of it."""
    DRIVER_RESUMING = "driver.resuming"
    """Resumes a run, and has started nothing."""

    GCS_SERVING = "gcs_server.serving"
    """Serves the cluster that the driver has started, which has heard how the run stands."""
    RAYLET_SERVING = "raylet.serving"
    """The same."""

    @property
    def role(self) -> str:
        """The process that is killed there: trainer, server, driver, or one of Ray's."""
        return self.partition(".")[0]


OF_RAY: Final = (FaultPoint.GCS_SERVING, FaultPoint.RAYLET_SERVING)
"""Fault points of processes that run no code of leap_rl: the driver reaches them in their place."""

OnFaultPoint: TypeAlias = Callable[[FaultPoint], None]


def no_fault(point: FaultPoint) -> None:
    """Do nothing."""


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
            if point in OF_RAY:
                kill_children_named(point.role)
                return
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
