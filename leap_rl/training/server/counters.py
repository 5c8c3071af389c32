"""What the parameter server counts, since this process began, for display only."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from leap_rl.tracking.metrics import Row


class Counters:
    """Counts, each named like its Prometheus series, and the newest committed row.

    `rows` are those of the checkpoint that the server begins with.
    """

    def __init__(self, rows: Sequence[Mapping[str, Any]] = (), *, restarted: bool = False) -> None:
        self.agent_steps = 0
        self.streams = 0
        self.snapshots = 0
        self.tasks_completed = 0
        self.repeats_refused = 0
        self.abandons = 0
        self.lease_expiries = 0
        self.trainers_lost = 0
        self.server_restarts = int(restarted)
        self.tasks_restarted = 0
        self.tasks_dropped = 0
        self.tasks_cut_off = 0
        self.row: Row = {}
        """Of the newest committed meta-step; empty before the first."""
        for row in rows:
            self.committed(row["axis"], row["values"])

    def committed(self, axis: str, row: Row) -> None:
        """Take a row on disk, if it is a meta-step's."""
        if axis == "meta_step":
            # What only some meta-steps have, such as a gain, stands until the next one.
            self.row = {**self.row, **row}
