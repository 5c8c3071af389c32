"""Tasks that compute nothing and stream all the time, and a server that logs its messages."""

from __future__ import annotations

import json
import time
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from leap_rl.learners.task import Observe, Progress, TaskSpec
from leap_rl.meta.gradient_path import Point
from leap_rl.storage.durable_files import write_atomically
from leap_rl.storage.run_folder import RunFolder
from leap_rl.training.messages import Abandon, Complete, Continue, Counted, FloatVector, Stream
from leap_rl.training.rounds.plan import ClosedRound, FilledRound
from leap_rl.training.run_spec import RunSpec
from leap_rl.training.server.parameter_server import ParameterServer
from leap_rl.training.server.rounds import Rounds

UPDATE_S = 0.001
LOG = "server_log.json"
STREAMING, SHORT = "streaming", "short"
"""The two kinds of tasks. A trainer gets one of each: the short one's wait is what a complete
costs."""


class StreamingTask:
    """Computes nothing until all trainers have streamed together for a while.

    It has the parts of a `Task` that a run without snapshots calls.

    Args:
        spec: Its game is the kind of task.
        gathering: A folder in which every task leaves a file when it starts.
        together: How many streaming tasks there are.
        seconds: How long they stream together; not at all if the task is a short one.
        size: P.
    """

    device = torch.device("cpu")
    agent_steps_total = 1

    def __init__(
        self, spec: TaskSpec, *, gathering: Path, together: int, seconds: float, size: int
    ) -> None:
        self._spec = spec
        self._gathering = gathering
        self._together = together
        self._seconds = seconds
        self._theta = torch.zeros(size)
        self._loss = torch.zeros(())
        self._updates = 0
        self._until_s: float | None = None

    @property
    def done(self) -> bool:
        if self._spec.game == SHORT:
            return self._updates > 0
        return self._until_s is not None and time.monotonic() >= self._until_s

    def start(self, shared: Tensor) -> None:
        if self._spec.game == STREAMING:
            (self._gathering / str(self._spec.seed)).touch()

    def advance(self, observe: Observe) -> Progress:
        time.sleep(UPDATE_S)
        if self._until_s is None and len(list(self._gathering.iterdir())) == self._together:
            self._until_s = time.monotonic() + self._seconds
        observe(Point(theta=self._theta, loss=self._loss, grad=self._theta))
        self._updates += 1
        return Progress(updates=self._updates, agent_steps=0, losses={"total": 0.0})

    def end_point(self, *, with_grad: bool) -> Point:
        return Point(theta=self._theta, loss=self._loss)

    def named_parameters(self) -> dict[str, Tensor]:
        """Return nothing: no agent is exported."""
        return {}

    def close(self) -> None:
        """Do nothing."""


@dataclass(frozen=True, kw_only=True, slots=True)
class StreamingTasks:
    """Makes streaming tasks."""

    gathering: Path
    together: int
    seconds: float
    size: int
    """P."""

    def restores(self, game: str) -> bool:
        """Return true: a task is its counts."""
        return True

    def __call__(self, spec: TaskSpec) -> StreamingTask:
        return StreamingTask(
            spec,
            gathering=self.gathering,
            together=self.together,
            seconds=self.seconds,
            size=self.size,
        )

    def check_machine(self) -> None:
        """Do nothing: any machine can stream."""


class OneRound:
    """A round of streaming tasks, then of short ones; closing it does nothing."""

    rounds = 1
    saves_agents = False

    def __init__(self, trainers: int, size: int) -> None:
        self._trainers = trainers
        self._theta0: FloatVector = np.zeros(size, dtype=np.float32)

    def theta0(self, start_index: int = 0) -> FloatVector:
        return self._theta0

    def open(self, round_number: int) -> list[TaskSpec]:
        """Return a streaming and a short task for each trainer."""
        return [
            TaskSpec(game=kind, seed=number)
            for kind in (STREAMING, SHORT)
            for number in range(self._trainers)
        ]

    def close(self, filled: FilledRound) -> ClosedRound:
        """Keep nothing."""
        return ClosedRound(rows=[])


@dataclass(frozen=True, kw_only=True, slots=True)
class ServerLog:
    """Messages that a server received."""

    streams: list[tuple[int, float, float]]
    """Slot, arrival (monotonic seconds), and seconds to process it."""
    completes_s: list[float]
    """Seconds to process a complete, on disk, without the one that closed the round."""
    waits_s: list[float]
    """Seconds that a trainer waited for the answer to a complete, which has its next task."""


class CountingServer(ParameterServer):
    """The parameter server; it leaves a log in the run's folder when the round is closed."""

    log: ServerLog
    log_path: Path

    def stream(self, message: Stream) -> Continue | Abandon:
        came_s = time.monotonic()
        answer = super().stream(message)
        self.log.streams.append((message.ticket.slot, came_s, time.monotonic() - came_s))
        return answer

    def complete(self, message: Complete) -> Counted | Abandon:
        kind = self.rounds.open_round.slots[message.ticket.slot].spec.game
        came_s = time.monotonic()
        answer = super().complete(message)
        if kind == SHORT:
            self.log.waits_s.append(message.record.waiting_s)
        if not self.status().finished:
            self.log.completes_s.append(time.monotonic() - came_s)
        else:
            write_atomically(self.log_path, json.dumps(asdict(self.log)).encode())
        return answer


@dataclass(frozen=True, kw_only=True, slots=True)
class CountedRunSpec(RunSpec):
    """A run whose server counts."""

    def make_server(self, *, trainers_live: bool = False) -> CountingServer:
        folder = RunFolder(self.run_dir)
        rounds = Rounds(
            folder=folder,
            fingerprint=self.fingerprint,
            plan=self.make_plan(folder),
            lease_policy=self.lease_policy,
        )
        server = CountingServer(rounds=rounds)
        server.log = ServerLog(streams=[], completes_s=[], waits_s=[])
        server.log_path = folder.path / LOG
        return server
