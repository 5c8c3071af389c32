"""Carries out a study's cells: in processes of their own, several at a time, run by run."""

from __future__ import annotations

import errno
import math
import os
import queue
import signal
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Final

from leap_rl.core.errors import RunFailedError
from leap_rl.core.parsing import flatten
from leap_rl.runs.config import TrainConfig
from leap_rl.runs.header import to_mapping
from leap_rl.runs.process import STOP_WITHIN_S, Request, RunProcess, check_status
from leap_rl.studies.cells import Cell
from leap_rl.training.config import Joined
from leap_rl.training.interrupts import LATECOMER_S, Interrupts

LOOK_EVERY_S: Final = 0.5

ORPHANS_WITHIN_S: Final = 20.0
"""Processes of a study that was killed notice it, and stop within this time."""

Ended = tuple[Cell, Exception | None]


@dataclass(frozen=True, kw_only=True)
class Failure:
    """A cell that failed, and why in one line."""

    cell: Cell
    reason: str


@dataclass(kw_only=True)
class Execution:
    """The cells of a study under way."""

    cells: Sequence[Cell]
    processes: int
    """How many at a time."""
    trusts_imports: bool
    interrupts: Interrupts
    on_look: Callable[[], object]
    """Called twice a second, and after each cell."""
    on_finished: Callable[[Cell], object]
    on_failure: Callable[[Failure], object]
    joined: Joined | None = None
    """A cluster whose trainers serve all cells; none where each cell's process has its own one."""
    elapsed_s: float = 0.0
    """Wall-clock time of `run`."""
    running: dict[Cell, RunProcess] = field(default_factory=dict)
    failures: list[Failure] = field(default_factory=list)
    _waiting: list[Cell] = field(default_factory=list)
    _ended: queue.Queue[Ended] = field(default_factory=queue.Queue)
    _threads: list[threading.Thread] = field(default_factory=list)
    _working_s: list[float] = field(default_factory=list)

    @property
    def working_s(self) -> float:
        """Trainers' work on the tasks of these cells."""
        return math.fsum(self._working_s)

    def run(self) -> list[Failure]:
        """Carry out all cells that are not finished; return those that failed.

        A cell that fails does not stop the others, unless the disk is full.

        Raises:
            KeyboardInterrupt: The study is to stop; every cell can be resumed.
        """
        self._waiting = [cell for cell in self.cells if not cell.finished]
        began_s = time.monotonic()
        try:
            self._await_orphans()
            while self.running or self._next() is not None:
                while len(self.running) < self.processes and (cell := self._next()) is not None:
                    self._start(cell)
                self._look()
        except BaseException:
            self._stop()
            raise
        self.elapsed_s = time.monotonic() - began_s
        return self.failures

    def _next(self) -> Cell | None:
        """Return the cell to start next: of the first runs, so that a study that is stopped has
        whole ones; of these, the one after which the most is left to do.
        """
        if any(_is_full(failure.reason) for failure in self.failures):
            return None
        ready = [cell for cell in self._waiting if cell.after is None or cell.after.finished]
        return max(ready, key=lambda cell: (-cell.run, self._length(cell)), default=None)

    def _length(self, cell: Cell) -> float:
        after = [other for other in self._waiting if other.after is cell]
        return cell.agent_steps + max((other.agent_steps for other in after), default=0)

    def _start(self, cell: Cell) -> None:
        self._waiting.remove(cell)
        process = RunProcess(
            request_of(cell, trusts_imports=self.trusts_imports, joined=self.joined)
        )
        self.running[cell] = process
        thread = threading.Thread(target=self._wait, args=(cell, process), daemon=True)
        self._threads.append(thread)
        thread.start()

    def _wait(self, cell: Cell, process: RunProcess) -> None:
        error: Exception | None = None
        try:
            status = process.wait(lambda row: self._working_s.append(row.get("time/working_s", 0)))
            check_status(process.request, status)
            if status == 0 and not cell.finished:  # os._exit in somebody's own learner
                raise RunFailedError("its process ended with status 0 before it had finished")
        except (ValueError, RunFailedError, OSError) as failed:
            error = failed
        except KeyboardInterrupt:
            error = RunFailedError("was interrupted")
        self._ended.put((cell, error))

    def _look(self) -> None:
        """Take the cells that have ended, or wait a while for one."""
        self.interrupts.check()
        self.on_look()
        try:
            cell, error = self._ended.get(timeout=LOOK_EVERY_S)
        except queue.Empty:
            return
        if error is not None:  # a batch system ends all processes, and this one maybe last
            time.sleep(LATECOMER_S)
        self.interrupts.check()  # a cell that was interrupted with this process has not failed
        del self.running[cell]
        if error is None:
            self.on_finished(cell)
        else:
            failure = Failure(cell=cell, reason=" ".join(str(error).split()))
            self.failures.append(failure)
            self.on_failure(failure)

    def _await_orphans(self) -> None:
        """Wait for the processes of a study that was killed, which are about to stop."""
        until_s = time.monotonic() + ORPHANS_WITHIN_S
        while time.monotonic() < until_s and any(cell.folder.worker() for cell in self._waiting):
            self.interrupts.check()
            time.sleep(LOOK_EVERY_S)

    def _stop(self) -> None:
        """Have all cells stop, such that they can be resumed; kill those that do not."""
        for process in self.running.values():
            process.send_signal(signal.SIGINT)
        until_s = time.monotonic() + STOP_WITHIN_S
        for thread in self._threads:
            thread.join(max(0.0, until_s - time.monotonic()))
        for process in self.running.values():
            process.send_signal(signal.SIGKILL)


def _is_full(reason: str) -> bool:
    return os.strerror(errno.ENOSPC) in reason or os.strerror(errno.EDQUOT) in reason


def request_of(cell: Cell, *, trusts_imports: bool, joined: Joined | None = None) -> Request:
    """Return what a process is to do for a cell: make its run, or resume it."""
    given: dict[str, Any] = {
        "trusts_imports": trusts_imports,
        "stops_with": os.getpid(),
        "joined": None if joined is None else asdict(joined),
    }
    if cell.folder.exists():
        # Where it is computed and followed is the study's to say, each time that it is called.
        runtime = replace(cell.config.runtime, stop_after_s=None)
        tracking = {**asdict(cell.config.tracking), "console": "quiet"}
        options = flatten({"runtime": asdict(runtime), "tracking": tracking})
        if isinstance(cell.config, TrainConfig):
            options["meta.meta_steps"] = cell.rounds
        return Request(
            action="resume", command="resume", place=str(cell.path), options=options, **given
        )
    return Request(
        action="make",
        command=cell.config.command,
        place=str(cell.path),
        config=to_mapping(cell.config),
        options={"tracking.console": "quiet", "runtime.stop_after_s": None},
        **given,
    )
