"""Deaths on order: a process that comes to a phase for the n-th time is killed there.

`leap-rl chaos` says which, by a file that an environment variable names; without it nothing
happens. Counted are the visits of all processes of a run together, over all of their lives, by the
length of a file for each phase, to which each visit adds a byte.
"""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from leap_rl.training.faults.points import OnPhase, Phase, no_fault

PLAN_VARIABLE = "LEAP_RL_CHAOS"
"""Names the file with the deaths."""


@dataclass(frozen=True, slots=True)
class Deaths:
    """Kills whoever comes to a phase at a number on order.

    Args:
        folder: Where visits are counted and deaths are noted; on a file system that all processes
            share.
        at: The numbers, from 1, by phase.
    """

    folder: str
    at: Mapping[str, Sequence[int]]

    def __call__(self, phase: Phase) -> None:
        """Count a visit, and die of it if that is on order."""
        number = self._count(phase)
        if number in self.at.get(phase, ()):
            note = Path(self.folder) / f"{phase}.{number}.killed"
            note.write_text(f"{os.getpid()}\n")
            os.kill(os.getpid(), signal.SIGKILL)
            time.sleep(60.0)  # it is delivered before that

    def _count(self, phase: Phase) -> int:
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT
        descriptor = os.open(Path(self.folder) / f"{phase}.visits", flags, 0o600)
        try:
            os.write(descriptor, b".")
            # Where this very byte ended, whoever else is writing.
            return os.lseek(descriptor, 0, os.SEEK_CUR)
        finally:
            os.close(descriptor)

    def write(self, path: Path) -> None:
        """Write the plan for `ordered_deaths` to read."""
        Path(self.folder).mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps({"folder": self.folder, "at": dict(self.at)}))

    def visits(self) -> dict[Phase, int]:
        """Return how often each phase was come to."""
        paths = {phase: Path(self.folder) / f"{phase}.visits" for phase in Phase}
        return {phase: path.stat().st_size for phase, path in paths.items() if path.exists()}

    def happened(self) -> list[tuple[Phase, int]]:
        """Return the phases and numbers of the deaths that were died, in their order."""
        notes = sorted(Path(self.folder).glob("*.killed"), key=lambda note: note.stat().st_mtime_ns)
        words = [note.name.split(".") for note in notes]
        return [(Phase(f"{role}.{doing}"), int(number)) for role, doing, number, _ in words]


def ordered_deaths() -> OnPhase:
    """Return what the processes of this run are to do at each phase: as a rule, nothing."""
    plan = os.environ.get(PLAN_VARIABLE)
    return no_fault if plan is None else Deaths(**json.loads(Path(plan).read_text()))
