"""The parameter server: the single source of truth about a run's slots and contributions.

A slot of the open round is in one of three states:

                    claim                       complete
        PENDING ------------> RUNNING(a, n) ------------> COMPLETE
           ^                        |
           +------------------------+
            lease over, trainer lost,
            or its trainer claims anew

When all slots are COMPLETE the round closes: the policy averages and steps, the checkpoint goes
to disk, and the next round opens with every slot PENDING. Every method may be called twice, late
or never, in any order, by trainers that are taken for dead: the attempt on the ticket is the
fence, and a sum replaces what is there instead of adding to it, so each slot counts once.

A plain class that knows no runtime and no threads: whoever serves it calls one method at a time.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field, replace

import numpy as np

from leap_rl.messages import (
    Abandon,
    Assignment,
    Claim,
    Complete,
    Continue,
    Counted,
    Finished,
    FloatVector,
    RunningTask,
    ServerStatus,
    Stream,
    Ticket,
    Wait,
    Work,
)
from leap_rl.run_folder import RunFolder
from leap_rl.training.errors import NonFiniteContributionError, ProtocolError
from leap_rl.training.phases import OnPhase, Phase, no_fault
from leap_rl.training.rounds import ClosedRound, FilledSlot, RoundPolicy
from leap_rl.training.slot_files import (
    Lease,
    SlotFiles,
    SlotSnapshot,
    write_agent,
    write_curves,
)
from leap_rl.training.slots import Slot, SlotState

TICKS_A_LEASE = 4
"""A server that is not told the time this often was stalled."""


@dataclass(slots=True)
class _TrainerState:
    incarnation: int
    number: int = 0
    answer: Work = field(default_factory=Wait)


class ParameterServer:
    """Hands out a run's tasks, takes in their sums, and closes its rounds.

    Args:
        folder: The run's folder; holds at least checkpoint 0.
        fingerprint: SHA-256 of the run's defining config; messages of another are refused.
        policy: What the rounds consist of, restored from the folder's newest checkpoint.
        lease_s: A running slot unheard of for this long is free again.
        max_attempts: A slot that lost this many trainers without getting further stops the run.
        trainers_live: Whether the trainers that hold leases on disk may live on: this server takes
            the place of one that died. Otherwise all are gone, with the driver that started them.
        clock: Monotonic seconds.
        on_phase: Hears of each phase that the server comes to.

    Raises:
        RunFolderError: The folder holds what does not belong there, or cannot be read.
    """

    def __init__(
        self,
        *,
        folder: RunFolder,
        fingerprint: str,
        policy: RoundPolicy,
        lease_s: float,
        max_attempts: int,
        trainers_live: bool = False,
        clock: Callable[[], float] = time.monotonic,
        on_phase: OnPhase = no_fault,
    ) -> None:
        self._on_phase = on_phase
        latest = folder.latest()
        assert latest is not None, "a run is made with its checkpoint 0"
        self._folder = folder
        self._fingerprint = fingerprint
        self._policy = policy
        self._lease_s = lease_s
        self._max_attempts = max_attempts
        self._clock = clock
        self._trainers: dict[str, _TrainerState] = {}
        # The attempt that counted, by round and slot. A trainer repeats what it sent to a server
        # that died in answering it, and that can be no older than the last round.
        slots = folder.read_state(latest).get("slots", ())
        self._committed = {
            (latest - 1, index): int(slot["attempt"]) for index, slot in enumerate(slots)
        }
        self._failure: str | None = None
        self._ticked_s = clock()
        self._round = latest
        self._slots: list[Slot] = []
        self._closed: ClosedRound | None = None
        self._open_round(trainers_live=trainers_live)
        on_phase(Phase.SERVER_RESUMING)

    # -- what trainers call -------------------------------------------------------------------

    def claim(self, claim: Claim) -> Work:
        """Answer a trainer that asks for work; the same number gets the same answer."""
        trainer = self._trainers.get(claim.trainer)
        if trainer is None or claim.incarnation > trainer.incarnation:
            trainer = self._trainers[claim.trainer] = _TrainerState(incarnation=claim.incarnation)
            self._release(claim.trainer)
        if claim.incarnation < trainer.incarnation:
            return Finished()  # taken for dead and replaced: it must not get work again
        if claim.number < trainer.number:
            return Wait()  # overtaken on the way; nobody waits for this answer any more
        if claim.number > trainer.number or isinstance(trainer.answer, Wait):
            self._release(claim.trainer)
            trainer.number, trainer.answer = claim.number, Wait()  # if finding work fails
            trainer.answer = self._next_work(claim.trainer)
        return trainer.answer

    def stream(self, message: Stream) -> Continue | Abandon:
        """Take in a running task's sum so far; a repeated or overtaken one changes nothing.

        Raises:
            ProtocolError: The message belongs to another run.
            NonFiniteContributionError: The sum holds NaN or infinity.
            OSError: A snapshot could not be written.
        """
        slot = self._owned_slot(message.ticket)
        if isinstance(slot, Abandon):
            return slot
        slot.lease_until_s = self._clock() + self._lease_s
        self._refuse_non_finite(slot, message.contribution, message.n)
        if message.n >= slot.n:
            slot.n = message.n
            slot.contribution = message.contribution
            slot.live = message.live
        if message.snapshot is not None and (slot.durable_n is None or message.n > slot.durable_n):
            slot.files.write_snapshot(
                SlotSnapshot(
                    n=message.n, contribution=message.contribution, snapshot=message.snapshot
                )
            )
            slot.durable_n, slot.losses = message.n, 0
            self._on_phase(Phase.SERVER_FREEZING)
        self._on_phase(Phase.SERVER_STREAMING)
        return Continue(durable_n=slot.durable_n or 0)

    def complete(self, message: Complete) -> Counted | Abandon:
        """Take in a task's whole sum; answered only when it is on disk.

        Raises:
            ProtocolError: The message belongs to another run.
            NonFiniteContributionError: The sum holds NaN or infinity.
            OSError: It could not be written.
        """
        ticket = message.ticket
        self._check_fingerprint(ticket)
        if self._is_counted(ticket):
            return Counted(next=self.claim(message.claim))
        slot = self._owned_slot(ticket)
        if isinstance(slot, Abandon):
            return slot
        self._refuse_non_finite(slot, message.contribution, message.n)
        if self._policy.keeps_agents:
            write_agent(self._folder.agent(ticket.slot, slot.spec.game), message.agent)
        filled = FilledSlot(
            spec=slot.spec,
            attempt=ticket.attempt,
            contribution=message.contribution,
            record=message.record,
            episodes=message.episodes,
        )
        slot.files.write_filled(filled)
        self._on_phase(Phase.SERVER_COMPLETING)
        slot.filled = filled  # only now: a round must not close on what is not on disk
        slot.n, slot.contribution = message.n, message.contribution
        slot.state, slot.owner, slot.live = SlotState.COMPLETE, None, None
        self._close_full_rounds()
        return Counted(next=self.claim(message.claim))

    def beat(self, trainer: str, incarnation: int) -> None:
        """Renew the leases of a trainer that lives but has nothing to stream yet."""
        known = self._trainers.get(trainer)
        if known is not None and known.incarnation == incarnation:
            for slot in self._slots:
                if slot.owner == trainer:
                    slot.lease_until_s = self._clock() + self._lease_s

    # -- what the driver calls ----------------------------------------------------------------

    def trainer_lost(self, trainer: str) -> None:
        """Free what a trainer held that the runtime says is dead."""
        self._release(trainer)

    def tick(self) -> None:
        """Free the slots whose leases are over; to be called often.

        A server that stalls, on a slow disk say, hears nobody meanwhile: the time it missed is
        added to the leases.
        """
        now = self._clock()
        missed_s = now - self._ticked_s - self._lease_s / TICKS_A_LEASE
        self._ticked_s = now
        if missed_s > 0:
            for slot in self._slots:
                slot.lease_until_s += missed_s
        for slot in self._slots:
            if slot.state is SlotState.RUNNING and now > slot.lease_until_s:
                self._free(slot)

    def status(self) -> ServerStatus:
        """Return where the run stands."""
        return ServerStatus(
            round=self._round,
            rounds=self._policy.rounds,
            slots_complete=sum(slot.state is SlotState.COMPLETE for slot in self._slots),
            slots_total=len(self._slots),
            running=tuple(
                RunningTask(
                    slot=index,
                    game=slot.spec.game,
                    trainer=slot.owner,
                    attempt=slot.attempt,
                    live=slot.live,
                )
                for index, slot in enumerate(self._slots)
                if slot.owner is not None
            ),
            durable_segments=sum(
                slot.durable_n or 0 for slot in self._slots if slot.state is SlotState.RUNNING
            ),
            failure=self._failure,
        )

    def newest_sum(self, slot: int) -> tuple[int, FloatVector | None]:
        """Return a slot's number of segments and its newest sum, [P], in the open round."""
        return self._slots[slot].n, self._slots[slot].contribution

    # -- the state machine --------------------------------------------------------------------

    def _open_round(self, *, trainers_live: bool = True) -> None:
        finished = self._round >= self._policy.rounds
        specs = () if finished else self._policy.open(self._round)
        self._slots = [
            Slot(
                spec=spec,
                files=SlotFiles(self._folder.slot(self._round, index), spec, self._fingerprint),
            )
            for index, spec in enumerate(specs)
        ]
        self._opened_s = self._clock()
        self._folder.remove_slots(self._round - 1)  # which a crash may have left
        for index, slot in enumerate(self._slots):
            self._recover(index, slot, trainers_live=trainers_live)
        self._close_full_rounds()

    def _recover(self, index: int, slot: Slot, *, trainers_live: bool) -> None:
        """Bring a slot to where its files say that it stood."""
        filled, lease = slot.files.read_filled(), slot.files.read_lease()
        if lease is not None:
            slot.attempt = lease.attempt
        if filled is not None:
            slot.state, slot.filled, slot.attempt = SlotState.COMPLETE, filled, filled.attempt
            return
        assignment = self._assignment(index, slot)  # rolls the slot back to its snapshot
        if lease is None or lease.trainer is None:
            return
        if not trainers_live:
            # On disk, too: a server that takes this one's place must not wait for the dead.
            slot.files.write_lease(replace(lease, trainer=None, losses=0))
            return
        slot.losses = lease.losses if slot.n == lease.durable_n else 0
        claimed = (lease.incarnation, lease.number)
        known = self._trainers.get(lease.trainer)
        if known is not None and (known.incarnation, known.number) > claimed:
            self._free(slot)  # its trainer has claimed anew since, and got another slot
            return
        self._release(lease.trainer)
        slot.state, slot.owner = SlotState.RUNNING, lease.trainer
        slot.lease_until_s = self._clock() + self._lease_s
        # A claim that is repeated must get the answer that it got.
        self._trainers[lease.trainer] = _TrainerState(*claimed, answer=assignment)

    def _close_full_rounds(self) -> None:
        if not self._slots or any(slot.filled is None for slot in self._slots):
            return
        filled = [slot.filled for slot in self._slots if slot.filled is not None]
        if self._closed is None:  # once, however often writing what it leaves may fail
            elapsed_s = self._clock() - self._opened_s
            self._closed = self._policy.close(self._round, filled, elapsed_s=elapsed_s)
        closed = self._closed
        write_curves(self._folder.curves(self._round), self._round, filled)
        state = {
            **closed.state,
            "fingerprint": self._fingerprint,
            "slots": [
                {
                    **asdict(slot.spec),
                    "attempt": slot.attempt,
                    "trainer": slot.record.trainer,
                    "processor": slot.record.processor,
                }
                for slot in filled
            ],
            "rows": [{"axis": row.axis, "values": dict(row.values)} for row in closed.rows],
        }
        self._on_phase(Phase.SERVER_STEPPING)
        self._folder.write_checkpoint(
            self._round + 1,
            closed.files,
            state,
            before_latest=lambda: self._on_phase(Phase.SERVER_WRITING),
        )
        self._on_phase(Phase.SERVER_COMMITTED)
        self._committed.update(
            ((self._round, index), slot.attempt) for index, slot in enumerate(self._slots)
        )
        self._round, self._closed = self._round + 1, None
        self._open_round()

    def _next_work(self, trainer: str) -> Work:
        self._close_full_rounds()  # where the checkpoint could not be written before
        if self._failure is not None or self._round >= self._policy.rounds:
            return Finished()
        pending = (i for i, slot in enumerate(self._slots) if slot.state is SlotState.PENDING)
        index = next(pending, None)
        if index is None:
            return Wait()
        slot, claimant = self._slots[index], self._trainers[trainer]
        slot.attempt += 1
        slot.files.write_lease(
            Lease(
                attempt=slot.attempt,
                trainer=trainer,
                incarnation=claimant.incarnation,
                number=claimant.number,
                losses=slot.losses,
                durable_n=slot.durable_n or 0,
            )
        )
        self._on_phase(Phase.SERVER_CLAIMING)
        slot.state, slot.owner = SlotState.RUNNING, trainer
        slot.lease_until_s = self._clock() + self._lease_s
        return self._assignment(index, slot)

    def _assignment(self, index: int, slot: Slot) -> Assignment:
        """Roll a slot back to its newest snapshot, and return the work that goes on from there."""
        frozen = slot.files.read_snapshot()
        slot.live = None
        slot.durable_n = None if frozen is None else frozen.n
        slot.n = 0 if frozen is None else frozen.n
        slot.contribution = None if frozen is None else frozen.contribution
        return Assignment(
            ticket=Ticket(
                fingerprint=self._fingerprint,
                round=self._round,
                slot=index,
                attempt=slot.attempt,
            ),
            game=slot.spec.game,
            task_seed=slot.spec.seed,
            theta0=self._policy.theta0(),
            keep_agent=self._policy.keeps_agents,
            durable_n=slot.n,
            snapshot=None if frozen is None else frozen.snapshot,
        )

    def _owned_slot(self, ticket: Ticket) -> Slot | Abandon:
        """Return the running slot that the ticket's attempt owns, or why there is none."""
        self._check_fingerprint(ticket)
        if ticket.round != self._round:
            return Abandon(reason=f"round {ticket.round} is closed; round {self._round} is open")
        slot = self._slots[ticket.slot]
        if slot.attempt != ticket.attempt or slot.state is not SlotState.RUNNING:
            return Abandon(
                reason=f"slot {ticket.slot} is {slot.state.value} at attempt {slot.attempt}; "
                f"this is attempt {ticket.attempt}"
            )
        return slot

    def _is_counted(self, ticket: Ticket) -> bool:
        if ticket.round == self._round and ticket.slot < len(self._slots):
            slot = self._slots[ticket.slot]
            return slot.state is SlotState.COMPLETE and slot.attempt == ticket.attempt
        return self._committed.get((ticket.round, ticket.slot)) == ticket.attempt

    def _release(self, trainer: str) -> None:
        for slot in self._slots:
            if slot.owner == trainer:
                self._free(slot)

    def _free(self, slot: Slot) -> None:
        slot.state, slot.owner, slot.live = SlotState.PENDING, None, None
        slot.losses += 1
        if slot.losses >= self._max_attempts:
            self._failure = (
                f"slot {self._slots.index(slot)} of round {self._round} ({slot.spec.game}, task "
                f"seed {slot.spec.seed}) lost its trainer {slot.losses} times and got no further; "
                "runtime.max_attempts allows no more"
            )

    def _check_fingerprint(self, ticket: Ticket) -> None:
        if ticket.fingerprint != self._fingerprint:
            raise ProtocolError(
                f"a message carries the config fingerprint {ticket.fingerprint[:12]}, this run's "
                f"is {self._fingerprint[:12]}: a trainer of another run must not join this one"
            )

    def _refuse_non_finite(self, slot: Slot, contribution: FloatVector, n: int) -> None:
        if not np.isfinite(contribution).all():
            raise NonFiniteContributionError(
                f"the contribution of {slot.spec.game} (slot {self._slots.index(slot)} of round "
                f"{self._round}, task seed {slot.spec.seed}) holds NaN or infinity after "
                f"{n} updates"
            )
