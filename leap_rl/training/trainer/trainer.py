"""The trainer: trains one task at a time and streams its share of the meta-gradient.

A plain class: a `ServerClient` carries its messages, in one process or between two, and a
`StreamSchedule` says what it sends when.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import Protocol, runtime_checkable

import numpy as np
import torch

from leap_rl.core.determinism import processor_kind
from leap_rl.core.errors import UnfitSnapshotError
from leap_rl.learners.task import Task, TaskFactory, TaskSpec
from leap_rl.meta.gradient_path import GradientPath, Method, NonFiniteError, Point
from leap_rl.training import messages
from leap_rl.training.faults import FaultPoint, OnFaultPoint, no_fault
from leap_rl.training.trainer.recorder import TaskRecorder
from leap_rl.training.trainer.snapshot import (
    TRAIN_AGAIN,
    agent_to_carry,
    carry_over,
    restore_snapshot,
    take_snapshot,
)


class Due(Enum):
    """What a trainer is to send after an update."""

    NOTHING = "nothing"
    SUM = "sum"
    """The sum so far."""
    SNAPSHOT = "snapshot"
    """The sum so far and the task's snapshot."""


@runtime_checkable
class SpreadTask(Protocol):
    """A `Task` whose environments may be spread over processes, to the same bits."""

    env_processes: int
    """Processes that they are spread over."""

    def spread(self, processes: int) -> None:
        """Spread them over so many, or as many as can be used; between two updates."""


class ServerClient(Protocol):
    """Carries a trainer's messages to the server and the answers back."""

    def claim(self, claim: messages.Claim) -> messages.Work:
        """Ask for work; may take a while where none is free."""

    def due(self, *, restorable: bool) -> Due:
        """What is to be sent now, a snapshot only if one can be restored.

        Asked after every update, so cheap.
        """

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
    pace: float = 1.0
    """The factor on both intervals, which the server says."""

    def __post_init__(self) -> None:
        self.start_task()

    def start_task(self) -> None:
        now = time.monotonic()
        self._next_stream_s = now + self.pace * self.stream_every_s
        self._next_snapshot_s = now + self.pace * self.snapshot_every_s

    def due(self, *, restorable: bool) -> Due:
        now = time.monotonic()
        if restorable and now >= self._next_snapshot_s:
            return Due.SNAPSHOT
        return Due.SUM if now >= self._next_stream_s else Due.NOTHING

    def sent(self, *, snapshot: bool) -> None:
        now = time.monotonic()
        self._next_stream_s = now + self.pace * self.stream_every_s
        if snapshot:
            self._next_snapshot_s = now + self.pace * self.snapshot_every_s

    def lost(self) -> None:
        """Note that a stream may not have arrived: what it carried is due again."""
        self._next_snapshot_s = time.monotonic()


SENT = {Due.SUM: FaultPoint.TRAINER_STREAMING, Due.SNAPSHOT: FaultPoint.TRAINER_SNAPSHOTTING}


SPREADING_PAYS_S = 20.0
"""A task with less time left is not spread over more processes, which take seconds to start."""


@dataclass(kw_only=True)
class Trainer:
    """Trains tasks until the run has no more."""

    name: str
    """The trainer's name, unique in the run."""
    incarnation: int
    """Counts the starts of a trainer of this name, from 1."""
    server: ServerClient
    make_task: TaskFactory
    method: Method
    """The meta-learner, which makes the path that sums up a task's contribution."""
    node: str | None = None
    """As of `messages.Claim`."""
    on_fault_point: OnFaultPoint = no_fault
    idle_since_s: float = field(default_factory=time.monotonic)
    """When it began to wait for work, on the monotonic clock."""
    _claims: int = 0

    def run(self, *, waits: bool = True) -> bool:
        """Train tasks until the run has no more, or without ``waits`` until it has none for now.

        Returns whether the run has no more.
        """
        work = self._claim()
        while not isinstance(work, messages.Finished):
            if isinstance(work, messages.Assignment):
                answer = self._train(work, waiting_s=time.monotonic() - self.idle_since_s)
                if isinstance(answer, messages.Counted):
                    self.on_fault_point(FaultPoint.TRAINER_COMPLETED)
                    work = answer.next
                    continue
                self.idle_since_s = time.monotonic()
            elif not waits:
                return False
            work = self._claim()
        return True

    def _claim(self) -> messages.Work:
        self.on_fault_point(FaultPoint.TRAINER_CLAIMING)
        return self.server.claim(self._next_claim())

    def _train(
        self, assignment: messages.Assignment, *, waiting_s: float
    ) -> messages.Counted | messages.Abandon:
        self.on_fault_point(FaultPoint.TRAINER_CLAIMED)
        started_s = time.monotonic()
        # A copy: what a runtime hands over may be read-only memory that others share.
        theta0 = torch.from_numpy(np.array(assignment.theta0))
        task = self.make_task(TaskSpec(game=assignment.game, seed=assignment.task_seed))
        recorder = TaskRecorder(task.agent_steps_total, started_s=started_s)
        try:
            path = self.method.start(theta0.to(task.device), borrow=True)
            if assignment.snapshot is not None:
                restore_snapshot(assignment.snapshot, task, path, recorder)
            elif assignment.carried_agent is not None:
                carry_over(assignment.carried_agent, task, theta0)
            else:
                task.start(theta0)
            if path.segments != assignment.durable_n:
                raise UnfitSnapshotError(
                    f"the task's snapshot holds {path.segments} segments and its slot's sum "
                    f"{assignment.durable_n}; {TRAIN_AGAIN}"
                )
            restorable = self.make_task.restores(assignment.game)
            while not task.done:
                recorder.add(task.advance(path.visit))
                self.on_fault_point(FaultPoint.TRAINER_TRAINING)
                due = self.server.due(restorable=restorable)
                if due is not Due.NOTHING:
                    answer = self.server.stream(_stream(assignment, task, recorder, path, due))
                    if isinstance(answer, messages.Abandon):
                        return answer
                    self.on_fault_point(SENT[due])
                    if answer is not None and answer.env_processes is not None:
                        _spread(task, recorder, answer.env_processes)
            recorder.end()
            # Before the end point: its batch is one that the agent never learns from.
            carried = agent_to_carry(task) if self.method.carries_agents else None
            path.end(end_of_path(task, batches=self.method.end_batches))
            whole = self._complete(assignment, task, recorder, path, waiting_s=waiting_s)
            self.on_fault_point(FaultPoint.TRAINER_COMPLETING)
            self.idle_since_s = time.monotonic()  # until the answer
            return self.server.complete(replace(whole, carried_agent=carried))
        except NonFiniteError as error:
            return self.server.diverged(
                messages.Diverged(
                    ticket=assignment.ticket,
                    agent_steps=recorder.agent_steps,
                    reason=f"went wrong at update {recorder.updates}: {error}",
                )
            )
        finally:
            task.close()

    def _next_claim(self) -> messages.Claim:
        self._claims += 1
        return messages.Claim(
            trainer=self.name,
            incarnation=self.incarnation,
            number=self._claims,
            node=self.node,
        )

    def _complete(
        self,
        assignment: messages.Assignment,
        task: Task,
        recorder: TaskRecorder,
        path: GradientPath,
        *,
        waiting_s: float,
    ) -> messages.Complete:
        record = messages.TaskRecord(
            trainer=self.name,
            processor=processor_kind(),
            updates=recorder.updates,
            agent_steps=recorder.agent_steps,
            losses=recorder.losses.means(),
            path=path.metrics(),
            curve=tuple(recorder.curve),
            working_s=recorder.working_s,
            waiting_s=waiting_s,
        )
        agent = task.named_parameters() if assignment.save_agent else {}
        return messages.Complete(
            ticket=assignment.ticket,
            n=path.segments,
            contribution=_sum_so_far(path),
            record=record,
            episodes=recorder.episodes(),
            claim=self._next_claim(),
            agent={name: tensor.cpu().numpy() for name, tensor in agent.items()},
        )


def _stream(
    assignment: messages.Assignment,
    task: Task,
    recorder: TaskRecorder,
    path: GradientPath,
    due: Due,
) -> messages.Stream:
    return messages.Stream(
        ticket=assignment.ticket,
        n=path.segments,
        contribution=_sum_so_far(path),
        progress=recorder.progress(),
        snapshot=take_snapshot(task, path, recorder) if due is Due.SNAPSHOT else None,
    )


def _spread(task: Task, recorder: TaskRecorder, processes: int) -> None:
    """Take lent cores where that pays, and give back what is no longer lent."""
    if not isinstance(task, SpreadTask):
        return
    left_s = recorder.working_s * (task.agent_steps_total / max(recorder.agent_steps, 1) - 1)
    # At least twice as many, since all of them are started from scratch.
    grows = processes >= 2 * task.env_processes and left_s >= SPREADING_PAYS_S
    if grows or processes < task.env_processes:
        task.spread(processes)


def end_of_path(task: Task, *, batches: int) -> Point:
    """Return the path's end, its loss and gradient averaged over batches; with 0, no gradient."""
    end = task.end_point(with_grad=batches > 0)
    if batches <= 1:
        return end
    assert end.grad is not None
    # Copies: the next end point overwrites these.
    loss, grad = torch.as_tensor(end.loss).clone(), end.grad.clone()
    for _ in range(batches - 1):
        another = task.end_point(with_grad=True)
        assert another.grad is not None
        loss += another.loss
        grad += another.grad
    return replace(end, loss=loss / batches, grad=grad / batches)


def _sum_so_far(path: GradientPath) -> messages.FloatVector:
    contribution: messages.FloatVector = path.gradient().cpu().numpy()
    return contribution
