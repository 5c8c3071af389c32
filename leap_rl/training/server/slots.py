"""What the parameter server knows of a place in the open round's batch.

            claim                       complete, or dropped
PENDING ------------> RUNNING(a, n) -------------------------> COMPLETE
   ^                        |
   +------------------------+
    lease over, trainer lost, its trainer claims again,
    or the task is to start again with another seed
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum

import numpy as np

from leap_rl.core.seeding import Purpose, derive_seed
from leap_rl.learners.task import TaskSpec
from leap_rl.tracking.status import TaskProgress
from leap_rl.training.messages import Bytes, Claim, Episodes, FloatVector, Stream, TaskRecord
from leap_rl.training.rounds.policy import DroppedSlot, FilledSlot
from leap_rl.training.server.slot_files import Lease, SlotFiles, SlotSnapshot


class SlotState(Enum):
    """Where a slot stands; see the picture above."""

    PENDING = "pending"
    RUNNING = "running"
    COMPLETE = "complete"


@dataclass(kw_only=True, slots=True)
class Slot:
    """A place in the open round's batch."""

    index: int
    round: int
    spec: TaskSpec
    files: SlotFiles
    state: SlotState = SlotState.PENDING
    attempt: int = 0
    """The newest attempt handed out; 0 before the first."""
    owner: str | None = None
    """The trainer that works on it while RUNNING."""
    heard: bool = False
    """Whether the owner has streamed, and so has got its assignment."""
    lease_until_s: float = 0.0
    trainer_failures: int = 0
    """Trainers lost on it since its task last got further."""
    restarts: int = 0
    """How often its task was started again with another seed."""
    n: int = 0
    """Segments in ``contribution``."""
    durable_n: int = 0
    """Segments behind the snapshot on disk; 0 without one."""
    contribution: FloatVector | None = None
    """The newest sum of the newest attempt, [P]."""
    progress: TaskProgress = field(default_factory=TaskProgress, repr=False)
    counted_steps: int | None = None
    """Agent steps of the task that are counted; None before this server has heard of it."""
    durable_steps: int | None = None
    """The same, at the newest snapshot that this server has taken in."""
    result: FilledSlot | DroppedSlot | None = field(default=None, repr=False)
    """What completed it."""

    @property
    def task_seed(self) -> int:
        """The seed of the slot's task: its own, or after a restart one derived from it."""
        if self.restarts == 0:
            return self.spec.seed
        return derive_seed(self.spec.seed, Purpose.RESTART, self.restarts)

    @property
    def name(self) -> str:
        """The slot in messages to the user."""
        where = f"slot {self.index} of round {self.round}"
        return f"{self.spec.game} ({where}, task seed {self.task_seed})"

    def new_steps(self, agent_steps: int) -> int:
        """Count a task's agent steps; returns how many are new.

        After a server's death, those between its last message and this one's first are not counted.
        """
        before = agent_steps if self.counted_steps is None else self.counted_steps
        self.counted_steps = agent_steps
        return max(0, agent_steps - before)

    def hand_out(self, claim: Claim, session: str) -> None:
        """Write that the next attempt is the claim's trainer's, under a driver's session."""
        self.attempt += 1
        self.files.write_lease(
            Lease(
                attempt=self.attempt,
                trainer=claim.trainer,
                incarnation=claim.incarnation,
                number=claim.number,
                trainer_failures=self.trainer_failures,
                durable_n=self.durable_n,
                restarts=self.restarts,
                session=session,
            )
        )

    def roll_back(self) -> Bytes | None:
        """Return to the newest snapshot, or to the task's start; returns the snapshot."""
        taken = self.files.read_snapshot(restarts=self.restarts)
        self.progress = TaskProgress()
        if taken is None:
            self.n, self.durable_n, self.contribution = 0, 0, None
            return None
        self.n, self.durable_n, self.contribution = taken.n, taken.n, taken.contribution
        return taken.snapshot

    def write_snapshot(self, message: Stream, snapshot: Bytes) -> None:
        """Put a stream's snapshot on disk, with its sum."""
        self.files.write_snapshot(
            SlotSnapshot(
                restarts=self.restarts,
                n=message.n,
                contribution=message.contribution,
                snapshot=snapshot,
            )
        )
        self.durable_n, self.trainer_failures = message.n, 0
        self.durable_steps = message.progress.agent_steps

    def free(self) -> None:
        """Take it from its trainer, which is lost."""
        self._leave(SlotState.PENDING)
        self.trainer_failures += 1

    def restart(self) -> None:
        """Start its task again from the initialization, with the next seed; written to disk."""
        restarts = self.restarts + 1
        self.files.write_lease(Lease(attempt=self.attempt, restarts=restarts))
        self.restarts, self.trainer_failures = restarts, 0
        self.n, self.durable_n, self.contribution = 0, 0, None
        self._leave(SlotState.PENDING)

    def fill(
        self,
        contribution: FloatVector,
        record: TaskRecord,
        episodes: Episodes,
        *,
        carried_agent: Bytes | None = None,
        cut_off: bool = False,
    ) -> None:
        """Complete it with a sum, [P]."""
        self._complete(
            FilledSlot(
                spec=self.spec,
                attempt=self.attempt,
                restarts=self.restarts,
                cut_off=cut_off,
                contribution=contribution,
                record=record,
                episodes=episodes,
                carried_agent=carried_agent,
            )
        )
        self.contribution = contribution

    def drop(self, reason: str, agent_steps: int) -> None:
        """Complete it without a contribution."""
        self._complete(
            DroppedSlot(
                spec=self.spec,
                attempt=self.attempt,
                restarts=self.restarts,
                reason=reason,
                agent_steps=agent_steps,
            )
        )

    def cut_off(self) -> None:
        """Complete it with its newest sum, without episodes and losses; drop it if it has none."""
        agent_steps = self.progress.agent_steps
        if self.contribution is None or self.n == 0:
            self.drop("had no sum when its round closed, after meta.close_after_s", agent_steps)
            return
        record = TaskRecord(
            trainer=self.owner or "",
            processor="",
            updates=self.n,
            agent_steps=agent_steps,
            losses={},
            path={},
            curve=(),
            working_s=0.0,
            waiting_s=0.0,
        )
        episodes = Episodes(
            agent_steps=np.empty(0, dtype=np.int64),
            returns=np.empty(0, dtype=np.float64),
            lengths=np.empty(0, dtype=np.int64),
        )
        self.fill(self.contribution, record, episodes, cut_off=True)

    def take(self, result: FilledSlot | DroppedSlot) -> None:
        """Take a result that is on disk."""
        self._leave(SlotState.COMPLETE)
        self.attempt, self.restarts = result.attempt, result.restarts
        self.result = result

    def _complete(self, result: FilledSlot | DroppedSlot) -> None:
        self.files.write_result(result)  # before it counts
        self.take(result)

    def _leave(self, state: SlotState) -> None:
        self.state, self.owner, self.progress = state, None, TaskProgress()
