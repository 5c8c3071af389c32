"""The parameter server: the single source of truth about a run's slots and contributions.

Trainers claim the slots of the open round, stream their sums and complete them. `slots.py` has a
slot's states; `rounds.py` opens, closes and commits the rounds. Every method may be called twice,
late or never, in any order, by trainers that are taken for dead: the attempt on the ticket is the
fence, and a sum replaces the one before it instead of adding to it, so each slot counts once.

A plain class without runtime or threads: its caller calls one method at a time.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass

import numpy as np
from safetensors.numpy import save

from leap_rl.core.choices import OnDivergence
from leap_rl.core.errors import ProtocolError
from leap_rl.tracking.status import RunStatus
from leap_rl.training import messages
from leap_rl.training.faults import FaultPoint
from leap_rl.training.server.rounds import Counters, OpenRound, Rounds, TrainerState
from leap_rl.training.server.slots import Slot, SlotState

MAX_RESTARTS = 3
"""Seeds tried after one has diverged, before the run stops."""

_log = logging.getLogger(__name__)


@dataclass(kw_only=True)
class ParameterServer:
    """Hands out a run's tasks and takes in their sums, each once."""

    rounds: Rounds
    """Of the run: where all that it knows of slots is, and on disk."""
    on_divergence: OnDivergence = "stop"
    """What becomes of a task whose numbers are no longer finite."""

    def __post_init__(self) -> None:
        self.rounds.on_fault_point(FaultPoint.SERVER_RESUMING)

    @property
    def counters(self) -> Counters:
        return self.rounds.counters

    @property
    def has_work(self) -> bool:
        """Whether a trainer that claims now gets a task, or hears that there are no more."""
        slots = self._open.slots
        return self.rounds.finished or any(slot.state is SlotState.PENDING for slot in slots)

    @property
    def _open(self) -> OpenRound:
        return self.rounds.open_round

    def status(self) -> RunStatus:
        return self.rounds.status()

    # -- claims -----------------------------------------------------------------------------------

    def claim(self, claim: messages.Claim) -> messages.Work:
        """Answer a trainer that asks for work; the same number gets the same work."""
        trainer = self.rounds.trainers.get(claim.trainer)
        if trainer is None or claim.incarnation > trainer.incarnation:
            trainer = self.rounds.trainers[claim.trainer] = TrainerState(
                incarnation=claim.incarnation
            )
            self._open.release(claim.trainer, "its trainer was started from scratch")
        if claim.incarnation < trainer.incarnation:
            return messages.Finished()  # taken for dead, and replaced by a newer incarnation
        if claim.number < trainer.number:
            self.counters.repeats_refused += 1
            return messages.Wait()  # overtaken on the way; nobody waits for this answer any more
        if claim.number == trainer.number and trainer.handed:
            self.counters.repeats_refused += 1
            held = self._open.held_by(claim.trainer)
            if held is not None and not held.heard:
                return self._assignment(held)  # the answer was lost
            # Late, as its trainer has streamed since; or the slot was lost before the answer
            # arrived, and the trainer comes back with its next number.
            return messages.Wait()
        self._open.release(claim.trainer, "its trainer claimed again")
        trainer.number, trainer.handed, trainer.node = claim.number, False, claim.node
        return self._next_work(claim, trainer)

    def _next_work(self, claim: messages.Claim, trainer: TrainerState) -> messages.Work:
        self.rounds.close_if_full()  # if an earlier call could not write the checkpoint
        if self.rounds.finished:
            return messages.Finished()
        slot = self._open.next_pending(longest_first=len(self.rounds.trainers) > 1)
        if slot is None:
            return messages.Wait()
        slot.hand_out(claim, self.rounds.session)
        self.rounds.on_fault_point(FaultPoint.SERVER_CLAIMING)
        trainer.handed = True
        self._open.let_run(slot, claim.trainer)
        return self._assignment(slot)

    def _assignment(self, slot: Slot) -> messages.Assignment:
        """Roll a slot back to its newest snapshot, and return the work from there."""
        snapshot = slot.roll_back()
        slot.counted_steps = slot.summed_steps
        # A task that diverged starts from scratch, since its agent would diverge again.
        carries_over = snapshot is None and slot.restarts == 0
        return messages.Assignment(
            ticket=messages.Ticket(
                fingerprint=self.rounds.fingerprint,
                round=slot.round,
                slot=slot.index,
                attempt=slot.attempt,
            ),
            game=slot.spec.game,
            task_seed=slot.task_seed,
            theta0=self.rounds.plan.theta0(slot.spec.start_index),
            save_agent=self.rounds.plan.saves_agents,
            durable_n=slot.n,
            snapshot=snapshot,
            carried_agent=self.rounds.carried_agents.read(slot.spec.game) if carries_over else None,
        )

    # -- streams ----------------------------------------------------------------------------------

    def stream(self, message: messages.Stream) -> messages.Continue | messages.Abandon:
        """Take in a running task's sum so far; a repeated or overtaken one changes nothing.

        Raises:
            ProtocolError: The message belongs to another run.
            OSError: A snapshot could not be written.
        """
        slot = self._owned_slot(message.ticket)
        if isinstance(slot, messages.Abandon):
            return slot
        slot.heard = True
        self._open.renew(slot)
        if not np.isfinite(message.contribution).all():
            # A slot's fate must not depend on when its trainer streamed: only `complete` may
            # restart or drop it.
            if self.on_divergence == "stop":
                return self._diverged(slot, _not_finite(message.n), agent_steps=0)
            return messages.Continue(durable_n=slot.durable_n)
        if slot.contribution is not None and message.n <= slot.n:
            self.counters.repeats_refused += 1
        else:
            self.counters.streams += 1
        if message.n >= slot.n:
            self.counters.agent_steps += slot.new_steps(message.progress.agent_steps)
            slot.n = message.n
            slot.contribution = message.contribution
            slot.progress = message.progress
            slot.summed_steps = message.progress.agent_steps
        if message.snapshot is not None and message.n > slot.durable_n:
            slot.write_snapshot(message, message.snapshot)
            self.counters.snapshots += 1
            self.rounds.on_fault_point(FaultPoint.SERVER_SNAPSHOTTING)
        self.rounds.on_fault_point(FaultPoint.SERVER_STREAMING)
        return messages.Continue(
            durable_n=slot.durable_n, env_processes=self.rounds.env_processes(slot)
        )

    def heartbeat(self, trainer: str, incarnation: int) -> None:
        """Renew the leases of a trainer that lives but has nothing to stream yet."""
        known, slot = self.rounds.trainers.get(trainer), self._open.held_by(trainer)
        if known is not None and known.incarnation == incarnation and slot is not None:
            self._open.renew(slot)

    # -- completion: here a contribution counts once ----------------------------------------------

    def complete(self, message: messages.Complete) -> messages.Counted | messages.Abandon:
        """Take in a task's whole sum; answered only when it is on disk.

        Raises:
            ProtocolError: The message belongs to another run.
            OSError: It could not be written.
        """
        ticket = message.ticket
        self._check_fingerprint(ticket)
        if self.rounds.has_counted(ticket):
            self.counters.repeats_refused += 1
            return messages.Counted(next=self.claim(message.claim))
        slot = self._owned_slot(ticket)
        if isinstance(slot, messages.Abandon):
            return slot
        if not np.isfinite(message.contribution).all():
            reason = _not_finite(message.n)
            return self._diverged(slot, reason, agent_steps=message.record.agent_steps)
        if self.rounds.plan.saves_agents:
            agent = {name: np.ascontiguousarray(array) for name, array in message.agent.items()}
            self.rounds.write_result(
                self.rounds.folder.agent(ticket.slot, slot.spec.game), save(agent)
            )
        slot.fill(
            message.contribution,
            message.record,
            message.episodes,
            carried_agent=message.carried_agent,
        )
        slot.n = message.n
        self.counters.tasks_completed += 1
        self.counters.agent_steps += slot.new_steps(message.record.agent_steps)
        self.rounds.on_fault_point(FaultPoint.SERVER_COMPLETING)
        self.rounds.close_if_full()
        return messages.Counted(next=self.claim(message.claim))

    # -- divergence -------------------------------------------------------------------------------

    def diverged(self, message: messages.Diverged) -> messages.Abandon:
        """Decide on the slot of a task whose numbers are no longer finite."""
        slot = self._owned_slot(message.ticket)
        if isinstance(slot, messages.Abandon):
            return slot
        return self._diverged(slot, message.reason, agent_steps=message.agent_steps)

    def _diverged(self, slot: Slot, reason: str, *, agent_steps: int) -> messages.Abandon:
        what = f"{slot.name} {reason}"
        if self.on_divergence == "drop_task":
            slot.drop(reason, agent_steps)
            self.counters.tasks_dropped += 1
            _log.warning("%s; it is dropped", what)
            self.rounds.close_if_full()
        elif self.on_divergence == "stop":
            way_out = "task.on_divergence = restart_task or drop_task would continue without it"
            self._open.failure = f"{what}; {way_out}"
        elif slot.restarts < MAX_RESTARTS:
            slot.restart()
            self.counters.tasks_restarted += 1
            _log.warning("%s; it starts again with task seed %d", what, slot.task_seed)
        else:
            self._open.failure = f"{what}, as with {MAX_RESTARTS} other seeds before"
        return messages.Abandon(reason=what)

    # -- lost trainers and late ones, told by the driver ------------------------------------------

    def trainer_lost(self, trainer: str, cause: str) -> None:
        """Free the slot of a trainer that the runtime says is dead."""
        self.counters.trainers_lost += 1
        if (lost := self.rounds.trainers.get(trainer)) is not None:
            lost.node = None
        self._open.release(trainer, cause)

    def fail(self, reason: str) -> None:
        """Stop the run."""
        self._open.failure = reason

    def tick(self) -> None:
        """Free the slots whose leases are over, and close a round that is late; called often."""
        if self._open.tick():
            self.rounds.close_if_full()

    # -- the fence --------------------------------------------------------------------------------

    def _owned_slot(self, ticket: messages.Ticket) -> Slot | messages.Abandon:
        """Return the running slot that the ticket's attempt owns, or why there is none."""
        self._check_fingerprint(ticket)
        number = self._open.number
        if ticket.round != number:
            reason = f"round {ticket.round} is closed; round {number} is open"
        else:
            slot = self._open.slots[ticket.slot]
            if slot.attempt == ticket.attempt and slot.state is SlotState.RUNNING:
                return slot
            reason = (
                f"slot {ticket.slot} is {slot.state.value} at attempt {slot.attempt}; "
                f"this is attempt {ticket.attempt}"
            )
        self.counters.abandons += 1
        return messages.Abandon(reason=reason)

    def _check_fingerprint(self, ticket: messages.Ticket) -> None:
        own = self.rounds.fingerprint
        if ticket.fingerprint != own:
            raise ProtocolError(
                f"a message carries the config fingerprint {ticket.fingerprint[:12]}, this run's "
                f"is {own[:12]}: a trainer of another run must not join this one"
            )


def _not_finite(n: int) -> str:
    return f"went wrong: its contribution holds NaN or infinity after {n} updates"
