"""Fault points: named moments of a run at which `benchmarks/chaos.py` kills processes.

The code calls `on_fault_point` at each; in a usual run that does nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import StrEnum
from typing import TypeAlias


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
    """Has read the run's folder, and has served nobody."""

    DRIVER_STARTING = "driver.starting"
    """Has the run's folder, and has started nothing."""
    DRIVER_SUPERVISING = "driver.supervising"
    """Has heard how the run stands."""
    DRIVER_REPLACING = "driver.replacing"
    """Has seen a trainer die, and has done nothing about it."""
    DRIVER_LOGGING = "driver.logging"
    """Has seen a round committed, and has logged nothing of it."""
    DRIVER_RESUMING = "driver.resuming"
    """Goes on with a run, and has started nothing."""

    @property
    def role(self) -> str:
        """The process that reaches it: trainer, server or driver."""
        return self.partition(".")[0]


OnFaultPoint: TypeAlias = Callable[[FaultPoint], None]


def no_fault(point: FaultPoint) -> None:
    """Do nothing."""
