"""The parameter server: the single source of truth about a run's slots and contributions.

Trainers claim the slots of the open round, stream their sums and complete them; `slots.py` has the
picture. When all slots are complete the round closes: the policy averages and steps, the checkpoint
goes to disk, and the next round opens. Every method may be called twice, late or never, in any
order, by trainers that are taken for dead: the attempt on the ticket is the fence, and a sum
replaces what is there instead of adding to it, so each slot counts once.

A plain class without runtime or threads: its caller calls one method at a time.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from leap_rl.storage.run_folder import RunFolder
from leap_rl.tasks.divergence import OnDivergence
from leap_rl.training.errors import ProtocolError
from leap_rl.training.faults.points import FaultPoint, OnFaultPoint, no_fault
from leap_rl.training.messages import (
    Abandon,
    Assignment,
    Claim,
    Complete,
    Continue,
    Counted,
    Diverged,
    Finished,
    FloatVector,
    ServerStatus,
    Stream,
    Ticket,
    Wait,
    Work,
)
from leap_rl.training.rounds.policy import (
    ClosedRound,
    DroppedSlot,
    FilledSlot,
    RoundPolicy,
)
from leap_rl.training.server.commit import agent_file, commit_round
from leap_rl.training.server.counters import Counters
from leap_rl.training.server.kept_agents import KeptAgents
from leap_rl.training.server.open_round import LeasePolicy, OpenRound
from leap_rl.training.server.slot_files import SlotSnapshot
from leap_rl.training.server.slots import Slot, SlotState

MAX_RESTARTS = 3
"""Seeds tried in place of one whose numbers went bad, before the run stops."""

_log = logging.getLogger(__name__)


@dataclass(slots=True)
class _TrainerState:
    incarnation: int
    number: int = 0
    """Of its newest claim."""
    handed: bool = False
    """Whether that claim was answered with work."""


class ParameterServer:
    """Hands out a run's tasks, takes in their sums, and closes its rounds.

    Args:
        folder: The run's folder; holds at least checkpoint 0.
        fingerprint: SHA-256 of the run's defining config; messages of another are refused.
        policy: What the rounds consist of, restored from the folder's newest checkpoint.
        lease_policy: When a slot is taken from its trainer, and a round from its slots.
        on_divergence: What becomes of a task whose numbers are no longer finite.
        keep_checkpoints: Of how many checkpoints the parameters stay; none for all.
        session: Identifies the driver; the trainers of leases with another one are gone.
        trainers_live: Whether the trainers of the driver's leases on disk may live on: this server
            takes the place of one that died. Otherwise the driver has started none yet.
        clock: Monotonic seconds.
        on_fault_point: Fault-injection callback.

    Raises:
        RunFolderError: The folder holds what does not belong there, or cannot be read.
    """

    def __init__(
        self,
        *,
        folder: RunFolder,
        fingerprint: str,
        policy: RoundPolicy,
        lease_policy: LeasePolicy,
        on_divergence: OnDivergence = "stop",
        keep_checkpoints: int | None = None,
        session: str = "",
        trainers_live: bool = False,
        clock: Callable[[], float] = time.monotonic,
        on_fault_point: OnFaultPoint = no_fault,
    ) -> None:
        self._on_fault_point = on_fault_point
        latest = folder.latest()
        assert latest is not None, "a run is made with its checkpoint 0"
        self._folder = folder
        folder.rely_on_locks()
        self._fingerprint = fingerprint
        self._policy = policy
        self._lease_policy = lease_policy
        self._on_divergence = on_divergence
        self._keep_checkpoints = keep_checkpoints
        self._session = session
        self._clock = clock
        self._trainers: dict[str, _TrainerState] = {}
        # The attempt that counted, by round and slot. A trainer repeats what it sent to a server
        # that died in answering it, and that can be no older than the last round.
        state = folder.read_state(latest)
        slots = state.get("slots", ())
        self.counters = Counters(state.get("rows", ()), restarted=trainers_live)
        """For who shows how the run goes."""
        self._kept_agents = KeptAgents(folder, fingerprint, state.get("kept", {}))
        self._committed = {
            (latest - 1, index): int(slot["attempt"]) for index, slot in enumerate(slots)
        }
        self._closed: ClosedRound | None = None
        self._open = self._open_round(latest, trainers_live=trainers_live)
        self._close_full_rounds()
        on_fault_point(FaultPoint.SERVER_RESUMING)

    # -- what trainers call -------------------------------------------------------------------

    def claim(self, claim: Claim) -> Work:
        """Answer a trainer that asks for work; the same number gets the same work."""
        trainer = self._trainers.get(claim.trainer)
        if trainer is None or claim.incarnation > trainer.incarnation:
            trainer = self._trainers[claim.trainer] = _TrainerState(incarnation=claim.incarnation)
            self._open.release(claim.trainer, "its trainer was started from scratch")
        if claim.incarnation < trainer.incarnation:
            return Finished()  # taken for dead and replaced: it must not get work again
        if claim.number < trainer.number:
            self.counters.repeats_refused += 1
            return Wait()  # overtaken on the way; nobody waits for this answer any more
        if claim.number == trainer.number and trainer.handed:
            self.counters.repeats_refused += 1
            held = self._open.held_by(claim.trainer)
            if held is not None and not held.heard:
                return self._assignment(held)  # the answer was lost
            # Late, as its trainer has streamed since; or the slot was lost before the answer
            # arrived, and the trainer comes back with its next number.
            return Wait()
        self._open.release(claim.trainer, "its trainer claimed again")
        trainer.number, trainer.handed = claim.number, False
        return self._next_work(claim, trainer)

    def stream(self, message: Stream) -> Continue | Abandon:
        """Take in a running task's sum so far; a repeated or overtaken one changes nothing.

        Raises:
            ProtocolError: The message belongs to another run.
            OSError: A snapshot could not be written.
        """
        slot = self._owned_slot(message.ticket)
        if isinstance(slot, Abandon):
            return slot
        slot.heard = True
        self._open.renew(slot)
        if not np.isfinite(message.contribution).all():
            # What becomes of its slot must not hang on when a trainer happened to stream, so that
            # only `complete` may restart or drop it.
            if self._on_divergence == "stop":
                return self._diverged(slot, _not_finite(message.n), agent_steps=0)
            return Continue(durable_n=slot.durable_n)
        if slot.contribution is not None and message.n <= slot.n:
            self.counters.repeats_refused += 1
        else:
            self.counters.streams += 1
        if message.n >= slot.n:
            self.counters.heard(slot.index, message.live.agent_steps)
            slot.n = message.n
            slot.contribution = message.contribution
            slot.live = message.live
        if message.snapshot is not None and message.n > slot.durable_n:
            slot.files.write_snapshot(
                SlotSnapshot(
                    restarts=slot.restarts,
                    n=message.n,
                    contribution=message.contribution,
                    snapshot=message.snapshot,
                )
            )
            slot.durable_n, slot.trainer_failures = message.n, 0
            self.counters.snapshot_taken(slot.index, message.live.agent_steps)
            self._on_fault_point(FaultPoint.SERVER_SNAPSHOTTING)
        self._on_fault_point(FaultPoint.SERVER_STREAMING)
        return Continue(durable_n=slot.durable_n)

    def complete(self, message: Complete) -> Counted | Abandon:
        """Take in a task's whole sum; answered only when it is on disk.

        Raises:
            ProtocolError: The message belongs to another run.
            OSError: It could not be written.
        """
        ticket = message.ticket
        self._check_fingerprint(ticket)
        if self._is_counted(ticket):
            self.counters.repeats_refused += 1
            return Counted(next=self.claim(message.claim))
        slot = self._owned_slot(ticket)
        if isinstance(slot, Abandon):
            return slot
        if not np.isfinite(message.contribution).all():
            reason = _not_finite(message.n)
            return self._diverged(slot, reason, agent_steps=message.record.agent_steps)
        if self._policy.keeps_agents:
            path = self._folder.agent(ticket.slot, slot.spec.game)
            self._folder.write(path, agent_file(message.agent))
        filled = FilledSlot(
            spec=slot.spec,
            attempt=ticket.attempt,
            restarts=slot.restarts,
            contribution=message.contribution,
            record=message.record,
            episodes=message.episodes,
            kept=message.kept,
        )
        slot.complete(filled)
        self.counters.tasks_completed += 1
        self.counters.heard(slot.index, message.record.agent_steps)
        self._on_fault_point(FaultPoint.SERVER_COMPLETING)
        slot.n, slot.contribution = message.n, message.contribution
        self._close_full_rounds()
        return Counted(next=self.claim(message.claim))

    def diverged(self, message: Diverged) -> Abandon:
        """Hear that a task's numbers are no longer finite, and decide on its slot.

        Raises:
            ProtocolError: The message belongs to another run.
            OSError: What was decided could not be written.
        """
        slot = self._owned_slot(message.ticket)
        if isinstance(slot, Abandon):
            return slot  # it was decided before
        return self._diverged(slot, message.reason, agent_steps=message.agent_steps)

    def heartbeat(self, trainer: str, incarnation: int) -> None:
        """Renew the leases of a trainer that lives but has nothing to stream yet."""
        known = self._trainers.get(trainer)
        if known is not None and known.incarnation == incarnation:
            slot = self._open.held_by(trainer)
            if slot is not None:
                self._open.renew(slot)

    # -- what the driver calls ----------------------------------------------------------------

    def trainer_lost(self, trainer: str, cause: str) -> None:
        """Free what a trainer held that the runtime says is dead, and of what."""
        self.counters.trainers_lost += 1
        self._open.release(trainer, cause)

    def tick(self) -> None:
        """Free the slots whose leases are over, and close a round that is late; called often."""
        if self._open.tick():
            self._close_full_rounds()

    def status(self) -> ServerStatus:
        """Return where the run stands."""
        slots = self._open.slots
        return ServerStatus(
            round=self._open.number,
            rounds=self._policy.rounds,
            slots_complete=sum(slot.state is SlotState.COMPLETE for slot in slots),
            slots_total=len(slots),
            running=self._open.running(),
            durable_segments=sum(
                slot.durable_n for slot in slots if slot.state is SlotState.RUNNING
            ),
            failure=self._open.failure,
        )

    def newest_sum(self, slot: int) -> tuple[int, FloatVector | None]:
        """Return a slot's number of segments and its newest sum, [P], in the open round."""
        return self._open.slots[slot].n, self._open.slots[slot].contribution

    # -- rounds -------------------------------------------------------------------------------

    def _open_round(self, number: int, *, trainers_live: bool = True) -> OpenRound:
        finished = number >= self._policy.rounds
        opened = OpenRound(
            number,
            () if finished else self._policy.open(number),
            folder=self._folder,
            fingerprint=self._fingerprint,
            lease_policy=self._lease_policy,
            clock=self._clock,
            counters=self.counters,
        )
        for slot in opened.slots:
            self._recover(opened, slot, trainers_live=trainers_live)
        return opened

    def _recover(self, opened: OpenRound, slot: Slot, *, trainers_live: bool) -> None:
        """Bring a slot to where its files say that it stood."""
        result, lease = slot.files.read_result(), slot.files.read_lease()
        if lease is not None:
            slot.attempt, slot.restarts = lease.attempt, lease.restarts
        if result is not None:
            slot.take(result)
            return
        slot.roll_back()
        if lease is None or lease.trainer is None:
            return
        if not trainers_live or lease.session != self._session:
            return  # it is gone, with the driver that started it
        slot.trainer_failures = lease.trainer_failures if slot.n == lease.durable_n else 0
        claimed = (lease.incarnation, lease.number)
        known = self._trainers.get(lease.trainer)
        if known is not None and (known.incarnation, known.number) > claimed:
            opened.free(slot, "its trainer claimed again")  # and got another slot since
            return
        opened.release(lease.trainer, "its trainer claimed again")
        opened.let_run(slot, lease.trainer)
        # A claim that is repeated must get the work that it got.
        self._trainers[lease.trainer] = _TrainerState(*claimed, handed=True)

    def _close_full_rounds(self) -> None:
        results, number = self._open.results, self._open.number
        if results is None:
            return
        filled = [slot for slot in results if isinstance(slot, FilledSlot)]
        dropped = [slot for slot in results if isinstance(slot, DroppedSlot)]
        if all(slot.spec.validates for slot in filled):
            self._open.failure = (
                f"round {number} has no task left: all were dropped, the first one since "
                f"{dropped[0].spec.game} {dropped[0].reason}"
            )
            return
        if self._closed is None:  # once, however often writing what it leaves may fail
            elapsed_s = self._open.elapsed_s
            self._closed = self._policy.close(number, filled, dropped=dropped, elapsed_s=elapsed_s)
        commit_round(
            self._folder,
            number,
            results,
            self._closed,
            kept_agents=self._kept_agents,
            fingerprint=self._fingerprint,
            keep_checkpoints=self._keep_checkpoints,
            on_fault_point=self._on_fault_point,
        )
        self._committed.update(
            ((number, index), slot.attempt) for index, slot in enumerate(results)
        )
        for row in self._closed.rows:
            self.counters.committed(row.axis, row.values)
        self._open = self._open_round(number + 1)
        self._closed = None  # only now: unless the next round opens, this one is committed again

    # -- slots --------------------------------------------------------------------------------

    def _next_work(self, claim: Claim, trainer: _TrainerState) -> Work:
        self._close_full_rounds()  # where the checkpoint could not be written before
        finished = self._open.number >= self._policy.rounds
        if finished or self._open.failure is not None:
            return Finished()
        slot = self._open.pending()
        if slot is None:
            return Wait()
        slot.hand_out(claim, self._session)
        self._on_fault_point(FaultPoint.SERVER_CLAIMING)
        trainer.handed = True
        self._open.let_run(slot, claim.trainer)
        return self._assignment(slot)

    def _assignment(self, slot: Slot) -> Assignment:
        """Roll a slot back to its newest snapshot, and return the work that goes on from there."""
        snapshot = slot.roll_back()
        self.counters.handed_out(slot.index, snapshot=snapshot is not None)
        # A task whose numbers went bad starts from scratch, since its agent would go on as it did.
        goes_on = snapshot is None and slot.restarts == 0
        return Assignment(
            ticket=Ticket(
                fingerprint=self._fingerprint,
                round=slot.round,
                slot=slot.index,
                attempt=slot.attempt,
            ),
            game=slot.spec.game,
            task_seed=slot.task_seed,
            theta0=self._policy.theta0(slot.spec.start),
            keep_agent=self._policy.keeps_agents,
            durable_n=slot.n,
            snapshot=snapshot,
            kept=self._kept_agents.read(slot.spec.game) if goes_on else None,
        )

    def _diverged(self, slot: Slot, reason: str, *, agent_steps: int) -> Abandon:
        """Stop the run, restart the task or drop it, as the config says."""
        what = f"{slot.name} {reason}"
        if self._on_divergence == "drop_task":
            dropped = DroppedSlot(
                spec=slot.spec,
                attempt=slot.attempt,
                restarts=slot.restarts,
                reason=reason,
                agent_steps=agent_steps,
            )
            slot.complete(dropped)
            self.counters.tasks_dropped += 1
            _log.warning("%s; it is dropped", what)
            self._close_full_rounds()
        elif self._on_divergence == "restart_task" and slot.restarts < MAX_RESTARTS:
            slot.restart()
            self.counters.tasks_restarted += 1
            _log.warning("%s; it starts again with task seed %d", what, slot.task_seed)
        else:
            self._open.failure = what + (
                f", as with {MAX_RESTARTS} other seeds before"
                if self._on_divergence == "restart_task"
                else "; task.on_divergence = restart_task or drop_task would go on without it"
            )
        return Abandon(reason=what)

    def _owned_slot(self, ticket: Ticket) -> Slot | Abandon:
        """Return the running slot that the ticket's attempt owns, or why there is none."""
        self._check_fingerprint(ticket)
        if ticket.round != self._open.number:
            self.counters.abandons += 1
            return Abandon(
                reason=f"round {ticket.round} is closed; round {self._open.number} is open"
            )
        slot = self._open.slots[ticket.slot]
        if slot.attempt != ticket.attempt or slot.state is not SlotState.RUNNING:
            self.counters.abandons += 1
            return Abandon(
                reason=f"slot {ticket.slot} is {slot.state.value} at attempt {slot.attempt}; "
                f"this is attempt {ticket.attempt}"
            )
        return slot

    def _is_counted(self, ticket: Ticket) -> bool:
        if ticket.round == self._open.number and ticket.slot < len(self._open.slots):
            slot = self._open.slots[ticket.slot]
            return slot.state is SlotState.COMPLETE and slot.attempt == ticket.attempt
        return self._committed.get((ticket.round, ticket.slot)) == ticket.attempt

    def _check_fingerprint(self, ticket: Ticket) -> None:
        if ticket.fingerprint != self._fingerprint:
            raise ProtocolError(
                f"a message carries the config fingerprint {ticket.fingerprint[:12]}, this run's "
                f"is {self._fingerprint[:12]}: a trainer of another run must not join this one"
            )


def _not_finite(n: int) -> str:
    return f"went wrong: its contribution holds NaN or infinity after {n} updates"
