"""Counts of the parameter server since its process began, for display only."""

from __future__ import annotations

from dataclasses import dataclass, field

from leap_rl.tracking.metrics import Row


@dataclass
class Counters:
    """Counts, each named like its Prometheus series, and the newest committed row."""

    agent_steps: int = 0
    streams: int = 0
    snapshots: int = 0
    tasks_completed: int = 0
    repeats_refused: int = 0
    abandons: int = 0
    lease_expiries: int = 0
    trainers_lost: int = 0
    server_restarts: int = 0
    tasks_restarted: int = 0
    tasks_dropped: int = 0
    tasks_cut_off: int = 0
    row: Row = field(default_factory=dict)
    """Of the newest committed meta-step; empty before the first."""

    def committed(self, axis: str, row: Row) -> None:
        """Take a row on disk, if it is a meta-step's."""
        if axis == "meta_step":
            # What only some meta-steps have, such as a gain, stands until the next one.
            self.row = {**self.row, **row}
