"""A run's rounds: opened with the plan's tasks, leased to trainers, closed, committed to disk."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Final

from leap_rl.core.regular_file import read_regular
from leap_rl.learners.task import TaskSpec
from leap_rl.storage.run_folder import SEALED, RunFolder
from leap_rl.tracking.metrics import Row
from leap_rl.tracking.status import RunStatus, TaskStatus
from leap_rl.training.faults import FaultPoint, OnFaultPoint, no_fault
from leap_rl.training.messages import Ticket
from leap_rl.training.rounds.plan import (
    ClosedRound,
    DroppedSlot,
    FilledRound,
    FilledSlot,
    RoundPlan,
)
from leap_rl.training.rounds.rows import episodes_file, speed
from leap_rl.training.server.carried_agents import CarriedAgents
from leap_rl.training.server.slots import Slot, SlotFiles, SlotState

TICKS_A_LEASE = 4
"""A server that ticks less often than this was stalled."""

NO_TASK_LEFT: Final = "has no task left: all were dropped"
"""What a run says that failed since each task of a round diverged."""


@dataclass(frozen=True, kw_only=True, slots=True)
class LeasePolicy:
    """How long the server waits, and how often."""

    lease_s: float
    """A running slot unheard of for this long is free again."""
    max_attempts: int
    """A slot that lost this many trainers without getting further stops the run."""
    close_after_s: float | None = None
    """A round closes on the sums so far when it has been open for this long; none for never."""


@dataclass(slots=True)
class TrainerState:
    """A trainer's newest claim."""

    incarnation: int
    number: int = 0
    handed: bool = False
    """Whether that claim was answered with work."""
    node: str | None = None
    """As of `messages.Claim`; none of a lost one."""


@dataclass
class Counters:
    """Counts since the server began, named like their Prometheus series; for display only."""

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


@dataclass(kw_only=True)
class OpenRound:
    """The slots of one round, none where the run is finished; `recover` reads their files."""

    number: int
    slots: Sequence[Slot]
    lease_policy: LeasePolicy
    clock: Callable[[], float]
    counters: Counters
    failure: str | None = None
    """Why the run cannot continue, if so."""

    def __post_init__(self) -> None:
        self._opened_s = self._ticked_s = self.clock()

    def recover(self, trainers: dict[str, TrainerState], session: str | None) -> None:
        """Restore the slots from their files.

        Args:
            trainers: Those known by now; the owners of running slots are added.
            session: The driver whose trainers may live; None where none does.
        """
        for slot in self.slots:
            result, lease = slot.files.read_result(), slot.files.read_lease()
            if lease is not None:
                slot.attempt, slot.restarts = lease.attempt, lease.restarts
            if result is not None:
                slot.take(result)
                continue
            slot.roll_back()
            if lease is None or lease.trainer is None or lease.session != session:
                continue
            slot.trainer_failures = lease.trainer_failures if slot.n == lease.durable_n else 0
            claimed = (lease.incarnation, lease.number)
            known = trainers.get(lease.trainer)
            if known is not None and (known.incarnation, known.number) > claimed:
                self.free(slot, "its trainer claimed again")  # and got another slot since
                continue
            self.release(lease.trainer, "its trainer claimed again")
            self.let_run(slot, lease.trainer)
            # A claim that is repeated must get the work that it got.
            trainers[lease.trainer] = TrainerState(*claimed, handed=True)

    @property
    def elapsed_s(self) -> float:
        """Wall-clock time since the round opened here."""
        return self.clock() - self._opened_s

    @property
    def results(self) -> list[FilledSlot | DroppedSlot] | None:
        """What completed the slots, in slot order; none as long as one is open."""
        results = [slot.result for slot in self.slots if slot.result is not None]
        return results if results and len(results) == len(self.slots) else None

    def held_by(self, trainer: str) -> Slot | None:
        return next((slot for slot in self.slots if slot.owner == trainer), None)

    def next_pending(self, *, longest_first: bool) -> Slot | None:
        """Return the next pending slot; none if none is pending.

        The longest is that of the slowest game, by the speeds that this run has measured. A game
        that has none yet comes first, since it may be the slowest. What validates comes last: it
        only tells of the others. No result depends on the order.
        """
        pending = (slot for slot in self.slots if slot.state is SlotState.PENDING)
        if not longest_first:
            return min(pending, key=lambda slot: slot.spec.validates, default=None)
        speeds: dict[str, float] = {}
        for slot in self.slots:
            if isinstance(slot.result, FilledSlot) and slot.result.record.working_s > 0:
                record = slot.result.record
                speeds[slot.spec.game] = record.agent_steps / record.working_s

        def expected(slot: Slot) -> float:
            game = slot.spec.game
            return speeds.get(game) or speed(self.counters.row, game) or 0.0

        return min(pending, key=lambda slot: (slot.spec.validates, expected(slot)), default=None)

    def let_run(self, slot: Slot, trainer: str) -> None:
        slot.state, slot.owner, slot.heard = SlotState.RUNNING, trainer, False
        self.renew(slot)

    def renew(self, slot: Slot) -> None:
        slot.lease_until_s = self.clock() + self.lease_policy.lease_s

    def release(self, trainer: str, cause: str) -> None:
        slot = self.held_by(trainer)
        if slot is not None:
            self.free(slot, cause)

    def free(self, slot: Slot, cause: str) -> None:
        slot.free()
        if slot.trainer_failures >= self.lease_policy.max_attempts:
            self.failure = (
                f"{slot.name} lost its trainer {slot.trainer_failures} times and got no further; "
                f"runtime.max_attempts allows no more. The last time: {cause}"
            )

    def tick(self) -> bool:
        """Free the slots whose leases are over; cut off those of a late round.

        Returns whether the round was late, and is to be closed.
        """
        now, lease_policy = self.clock(), self.lease_policy
        # A server that stalls, on a slow disk say, gets no heartbeats meanwhile.
        missed_s = now - self._ticked_s - lease_policy.lease_s / TICKS_A_LEASE
        self._ticked_s = now
        for slot in self.slots:
            slot.lease_until_s += max(0.0, missed_s)
            if slot.state is SlotState.RUNNING and now > slot.lease_until_s:
                self.counters.lease_expiries += 1
                self.free(slot, f"nothing was heard of it for {lease_policy.lease_s:g} s")
        late_s = lease_policy.close_after_s
        learned_from = [slot for slot in self.slots if not slot.spec.validates] or self.slots
        begun = any(slot.n > 0 for slot in learned_from)
        if late_s is None or self.elapsed_s < late_s or not begun:
            return False
        for slot in self.slots:
            if slot.result is None:
                slot.cut_off()
                self.counters.tasks_cut_off += isinstance(slot.result, FilledSlot)
                self.counters.tasks_dropped += isinstance(slot.result, DroppedSlot)
        return True


@dataclass(kw_only=True)
class Rounds:
    """The open round of a run, and those committed before it.

    Raises:
        RunFolderError: The folder holds what does not belong there, or cannot be read.
    """

    folder: RunFolder
    """The run's; holds at least checkpoint 0."""
    fingerprint: str
    plan: RoundPlan
    """Restored from the folder's newest checkpoint."""
    lease_policy: LeasePolicy
    keep_checkpoints: int | None = None
    """Of how many checkpoints the parameters stay; none for all."""
    session: str = ""
    """Identifies the driver; the trainers of leases with another one are gone."""
    trainers_live: bool = False
    """Whether this server takes the place of one that died, whose trainers may live. Otherwise the
    driver has started none yet."""
    clock: Callable[[], float] = time.monotonic
    """Monotonic seconds."""
    on_fault_point: OnFaultPoint = no_fault
    trainers: dict[str, TrainerState] = field(default_factory=dict)
    """By name, those that claimed or hold a lease."""

    def __post_init__(self) -> None:
        latest = self.folder.latest()
        assert latest is not None, "a run is made with its checkpoint 0"
        self.folder.rely_on_locks()
        state = self.folder.read_state(latest)
        self.counters = Counters(server_restarts=int(self.trainers_live))
        for row in state["rows"]:
            self.counters.committed(row["axis"], row["values"])
        self.carried_agents = CarriedAgents(
            self.folder, self.fingerprint, state.get("carried_over", {})
        )
        self._closed: ClosedRound | None = None
        self._sealed: dict[Path, str] = {}
        # The attempt that counted, by round and slot. A trainer repeats what it sent to a server
        # that died in answering it, and that can be no older than the last round.
        self._committed = {
            (latest - 1, index): int(slot["attempt"])
            for index, slot in enumerate(state.get("slots", ()))
        }
        self.open_round = self._open(latest, self.session if self.trainers_live else None)
        self.close_if_full()

    @property
    def finished(self) -> bool:
        """All rounds closed, or the run failed."""
        return self.open_round.number >= self.plan.rounds or self.open_round.failure is not None

    def status(self) -> RunStatus:
        slots = self.open_round.slots
        return RunStatus(
            round=self.open_round.number,
            rounds=self.plan.rounds,
            slots_complete=sum(slot.state is SlotState.COMPLETE for slot in slots),
            slots_total=len(slots),
            running=tuple(
                TaskStatus(
                    slot=slot.index,
                    game=slot.spec.game,
                    trainer=slot.owner,
                    attempt=slot.attempt,
                    agent_steps=slot.progress.agent_steps,
                    agent_steps_per_s=slot.progress.agent_steps_per_s,
                    mean_return=slot.progress.mean_return,
                )
                for slot in slots
                if slot.owner is not None
            ),
            durable_segments=sum(
                slot.durable_n for slot in slots if slot.state is SlotState.RUNNING
            ),
            failure=self.open_round.failure,
        )

    def env_processes(self, slot: Slot) -> int | None:
        """Return the processes that a running slot's environments may be spread over now.

        The cores of its machine's trainers without a task are divided among the slots that run
        there; what is left over goes to those that are furthest behind. None where none is lent.
        """
        owner = self.trainers.get(slot.owner or "")
        if owner is None or owner.node is None:
            return None
        here = {name for name, one in self.trainers.items() if one.node == owner.node}
        idle = sum(not self.trainers[name].handed for name in here)
        running = [one for one in self.open_round.slots if one.owner in here]
        each, left_over = divmod(idle, len(running))
        done = {one.index: (one.progress.agent_steps, one.index) for one in running}
        behind_it = sum(other < done[slot.index] for other in done.values())
        return 1 + each + (behind_it < left_over)

    def has_counted(self, ticket: Ticket) -> bool:
        """Whether the ticket's attempt completed its slot, in the open round or the last one."""
        opened = self.open_round
        if ticket.round == opened.number and ticket.slot < len(opened.slots):
            slot = opened.slots[ticket.slot]
            return slot.state is SlotState.COMPLETE and slot.attempt == ticket.attempt
        return self._committed.get((ticket.round, ticket.slot)) == ticket.attempt

    def close_if_full(self) -> None:
        """Close the open round if all of its slots are complete, and open the next one.

        Raises:
            OSError: Something could not be written; the round does not count then.
        """
        results, number = self.open_round.results, self.open_round.number
        if results is None:
            return
        filled = {i: slot for i, slot in enumerate(results) if isinstance(slot, FilledSlot)}
        dropped = [slot for slot in results if isinstance(slot, DroppedSlot)]
        if all(slot.spec.validates for slot in filled.values()):
            self.open_round.failure = (
                f"round {number} {NO_TASK_LEFT}, the first one since "
                f"{dropped[0].spec.game} {dropped[0].reason}"
            )
            return
        if self._closed is None:  # once, however often the writes below fail
            self._closed = self.plan.close(
                FilledRound(
                    number=number,
                    slots=list(filled.values()),
                    dropped=dropped,
                    elapsed_s=self.open_round.elapsed_s,
                    trainers=len(self.trainers),
                )
            )
        self.write_result(self.folder.curves(number), episodes_file(number, filled))
        self._commit(number, results, self._closed)
        self._committed |= {(number, index): slot.attempt for index, slot in enumerate(results)}
        for row in self._closed.rows:
            self.counters.committed(row.axis, row.values)
        self.open_round = self._open(number + 1, self.session)
        self._closed = None  # only now: unless the next round opens, this one is committed again

    def write_result(self, path: Path, content: bytes) -> None:
        """Write a file whose SHA-256 the round's checkpoint gets, so that damage to it is told."""
        self.folder.write(path, content)
        self._sealed[path] = hashlib.sha256(content).hexdigest()

    def _open(self, number: int, session: str | None) -> OpenRound:
        specs = () if number >= self.plan.rounds else self.plan.open(number)
        self.folder.remove_slots(number - 1)  # which a crash may have left
        opened = OpenRound(
            number=number,
            slots=[
                Slot(
                    index=index,
                    round=number,
                    spec=spec,
                    files=SlotFiles(
                        self.folder.slot(number, index),
                        spec,
                        self.fingerprint,
                        folder=self.folder,
                        parameters=partial(self._parameters, spec),
                    ),
                )
                for index, spec in enumerate(specs)
            ],
            lease_policy=self.lease_policy,
            clock=self.clock,
            counters=self.counters,
        )
        opened.recover(self.trainers, session)
        return opened

    def _parameters(self, spec: TaskSpec) -> int:
        return int(self.plan.theta0(spec.start_index).size)

    def _commit(
        self, number: int, results: Sequence[FilledSlot | DroppedSlot], closed: ClosedRound
    ) -> None:
        """Write a closed round's checkpoint, which makes the round count."""
        carried = self.carried_agents.after(number, results)
        if self.plan.saves_agents:
            for index, slot in enumerate(results):
                path = self.folder.agent(index, slot.spec.game)
                if path not in self._sealed and path.exists():  # from a server that died
                    self._sealed[path] = hashlib.sha256(read_regular(path)).hexdigest()
        state = {
            **closed.state,
            "fingerprint": self.fingerprint,
            "slots": [_entry(slot) for slot in results],
            "rows": [{"axis": row.axis, "values": dict(row.values)} for row in closed.rows],
            SEALED: {self.folder.name_of(path): digest for path, digest in self._sealed.items()},
            **({"carried_over": carried} if carried else {}),
        }
        if closed.best is not None:
            # Its checkpoint is there: this round began with it, or one before.
            self.folder.point_best(closed.best)
        self.on_fault_point(FaultPoint.SERVER_STEPPING)
        self.folder.write_checkpoint(
            number + 1,
            closed.files,
            state,
            before_latest=lambda: self.on_fault_point(FaultPoint.SERVER_WRITING),
        )
        self.carried_agents.committed(carried)
        self._sealed = {}
        if self.keep_checkpoints is not None:
            self.folder.thin_out(self.keep_checkpoints)
        self.on_fault_point(FaultPoint.SERVER_COMMITTED)


def _entry(slot: FilledSlot | DroppedSlot) -> dict[str, Any]:
    entry = {**slot.spec.plain(), "attempt": slot.attempt, "restarts": slot.restarts}
    if isinstance(slot, DroppedSlot):
        return entry | {"dropped": slot.reason}
    entry |= {"trainer": slot.record.trainer, "processor": slot.record.processor}
    return entry | {"cut_off": True} if slot.cut_off else entry
