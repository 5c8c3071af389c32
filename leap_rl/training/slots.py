"""What the parameter server knows of a place in the open round's batch."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from leap_rl.messages import FloatVector, LiveFigures
from leap_rl.tasks.task import TaskSpec
from leap_rl.training.rounds import FilledSlot
from leap_rl.training.slot_files import SlotFiles


class SlotState(Enum):
    """Where a slot stands; see the picture in `parameter_server`."""

    PENDING = "pending"
    RUNNING = "running"
    COMPLETE = "complete"


@dataclass(kw_only=True, slots=True)
class Slot:
    """A place in the open round's batch."""

    spec: TaskSpec
    files: SlotFiles
    state: SlotState = SlotState.PENDING
    attempt: int = 0
    """The newest attempt handed out; 0 before the first."""
    owner: str | None = None
    """The trainer that works on it while RUNNING."""
    lease_until_s: float = 0.0
    losses: int = 0
    """Trainers lost on it since its task last got further."""
    n: int = 0
    """Segments in ``contribution``."""
    durable_n: int | None = None
    """Segments behind the snapshot on disk; none without one."""
    contribution: FloatVector | None = None
    """The newest sum of the newest attempt, [P]."""
    live: LiveFigures | None = None
    filled: FilledSlot | None = None
