"""Between a run and who looks at it: shows how it stands, and logs the rows that it commits."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Final

from leap_rl.runs.header import LoadedRun
from leap_rl.runs.invocation import Invocation
from leap_rl.runs.kinds import kind_of, meta_trains
from leap_rl.storage.run_folder import INITIALIZATION
from leap_rl.tracking.console import Console
from leap_rl.tracking.jsonl import read_rows
from leap_rl.tracking.metrics import Row
from leap_rl.tracking.status import RunStatus
from leap_rl.tracking.tracker import Tracker
from leap_rl.training.faults import FaultPoint, OnFaultPoint

BEGINS_WITHIN_S: Final = 300.0
"""The user is told of a task that has no update by then. Its trainer's heartbeats keep its slot."""


@dataclass
class SlowStarts:
    """Tells once of each task that has no update for long."""

    tell: Callable[[str], object]
    clock: Callable[[], float] = time.monotonic
    _since_s: dict[tuple[int, int, int], float] = field(default_factory=dict)
    """By round, slot and attempt, when a task without updates was first seen; told: infinity."""

    def look(self, status: RunStatus) -> None:
        now = self.clock()
        tasks = {
            (status.round, task.slot, task.attempt): task
            for task in status.running
            if task.agent_steps == 0
        }
        self._since_s = {key: self._since_s.get(key, now) for key in tasks}
        for key, task in tasks.items():
            if now - self._since_s[key] >= BEGINS_WITHIN_S:
                self._since_s[key] = math.inf
                self.tell(
                    f"{task.game} (slot {task.slot}, {task.trainer}) has had no update for "
                    f"{BEGINS_WITHIN_S / 60:.0f} minutes: its environment may hang as it is made "
                    "or reset"
                )


class Monitor:
    """Shows how a run stands and logs what it commits.

    What is committed is read from the run's folder, the one place that holds it for sure: rows
    that a killed driver did not log are logged when the run is resumed.

    Args:
        run: The run; the checkpoint that it started with has no rows.
        tracker: Logs the rows.
        console: Shows how the run stands.
        call: Says who is called with each row once it is logged.
        on_fault_point: Called at each fault point of the driver.
    """

    def __init__(
        self,
        run: LoadedRun,
        tracker: Tracker,
        console: Console,
        call: Invocation,
        *,
        on_fault_point: OnFaultPoint,
    ) -> None:
        self._on_fault_point = on_fault_point
        self._on_row = call.on_row
        self._config, self._folder = run.config, run.folder
        self._tracker = tracker
        self._console = console
        self._slow_starts = SlowStarts(console.message)
        self._started = time.monotonic()
        rows = read_rows(run.folder.path / "metrics.jsonl")
        self._logged = len(rows)
        for row in rows[call.rows_seen :]:  # a driver that was killed may not have told them
            self._on_row(row)
        # What is known to be logged is not read again, and old checkpoints may go.
        self._rows_seen = self._logged if kind_of(run.config).row_per_round else 0
        first_checkpoint = run.header.first_checkpoint
        self._next_checkpoint = first_checkpoint + self._rows_seen + 1
        self._last_row: Row | None = None
        self._slots_total = 0
        for number in range(first_checkpoint + 1, self._next_checkpoint):
            self._log_initialization(number)  # again: who logged it may have died

    def report(self, status: RunStatus) -> None:
        """Take in how the run stands."""
        while self._next_checkpoint <= status.round:
            self._on_fault_point(FaultPoint.DRIVER_LOGGING)
            self._log_checkpoint(self._next_checkpoint)
            self._next_checkpoint += 1
        self._slots_total = status.slots_total or self._slots_total
        self._slow_starts.look(status)
        self._console.show(
            replace(
                status,
                # A finished run has no open slots any more: all of the last round's are done.
                slots_complete=self._slots_total if status.finished else status.slots_complete,
                slots_total=self._slots_total,
                command=self._config.command,
                agent_steps_total=self._config.task.suite.budget(self._config.task),
                unit=self._config.task.suite.unit,
                elapsed_s=time.monotonic() - self._started,
                last_row=self._last_row,
            )
        )

    def _log_checkpoint(self, number: int) -> None:
        for row in self._folder.read_state(number)["rows"]:
            self._rows_seen += 1
            if self._rows_seen > self._logged:
                self._tracker.log(row["values"], axis=row["axis"])
                self._last_row = row["values"]
                self._on_row(row["values"])
        self._log_initialization(number)

    def _log_initialization(self, number: int) -> None:
        """Log the initialization of a checkpoint, if it is one of those that are kept in wandb."""
        config, every = self._config, self._config.tracking.wandb_initializations_every
        if not meta_trains(config) or config.tracking.wandb == "disabled" or not every:
            return
        last, latest = config.meta.meta_steps, self._folder.latest() or 0
        if number % every and number != last:  # a store's would be fetched for nothing
            return
        newest = last if latest == last else latest - latest % every
        path = self._folder.checkpoint(number) / INITIALIZATION
        if path.exists():
            self._tracker.log_initialization(
                number,
                path,
                newest=number == newest,
                metadata={"method": config.meta.method, "seed": config.seed},
            )
