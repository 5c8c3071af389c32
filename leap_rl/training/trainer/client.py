"""How a trainer reaches the parameter server, and what it sends when."""

from __future__ import annotations

import time
from dataclasses import dataclass
from enum import Enum
from typing import Protocol

from leap_rl.training import messages


class Due(Enum):
    """What a trainer is to send after an update."""

    NOTHING = "nothing"
    SUM = "sum"
    """The sum so far."""
    SNAPSHOT = "snapshot"
    """The sum so far and the task's snapshot."""


class ServerClient(Protocol):
    """Carries a trainer's messages to the server and the answers back."""

    def claim(self, claim: messages.Claim) -> messages.Work:
        """Ask for work; may take a while where none is free."""

    def due(self) -> Due:
        """What is to be sent now; asked after every update, so cheap."""

    def stream(self, message: messages.Stream) -> messages.Continue | messages.Abandon | None:
        """Send a stream without waiting; returns the newest answer to one of this task, or none."""

    def complete(self, message: messages.Complete) -> messages.Counted | messages.Abandon:
        """Send the whole sum and wait until it counts."""

    def diverged(self, message: messages.Diverged) -> messages.Abandon:
        """Tell the server that the task's numbers are no longer finite."""


@dataclass(kw_only=True)
class StreamSchedule:
    """Says what a trainer is to send next, and when."""

    stream_every_s: float
    """Seconds between two streams."""
    snapshot_every_s: float
    """Seconds between two snapshots, which go with a stream."""
    restorable: bool = True
    """Whether tasks can be restored from snapshots; otherwise none is due."""

    def __post_init__(self) -> None:
        self.start_task()

    def start_task(self) -> None:
        now = time.monotonic()
        self._next_stream_s = now + self.stream_every_s
        self._next_snapshot_s = now + self.snapshot_every_s

    def due(self) -> Due:
        now = time.monotonic()
        if self.restorable and now >= self._next_snapshot_s:
            return Due.SNAPSHOT
        return Due.SUM if now >= self._next_stream_s else Due.NOTHING

    def sent(self, *, snapshot: bool) -> None:
        now = time.monotonic()
        self._next_stream_s = now + self.stream_every_s
        if snapshot:
            self._next_snapshot_s = now + self.snapshot_every_s

    def lost(self) -> None:
        """Note that a stream may not have arrived: what it carried is due again."""
        self._next_snapshot_s = time.monotonic()
