"""The open round: its slots, who works on them, for how long, and when it may close."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from leap_rl.training.rounds.policy import DroppedSlot, FilledSlot
from leap_rl.training.server.counters import Counters
from leap_rl.training.server.slots import Slot, SlotState

TICKS_A_LEASE = 4
"""A server that ticks less often than this was stalled."""


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


@dataclass(kw_only=True)
class OpenRound:
    """The slots of one round, none where the run is finished; `recover` reads their files."""

    number: int
    slots: Sequence[Slot]
    lease_policy: LeasePolicy
    clock: Callable[[], float]
    counters: Counters
    failure: str | None = None
    """Why the run cannot continue, where it cannot."""

    def __post_init__(self) -> None:
        self._opened_s = self._ticked_s = self.clock()

    def recover(self, trainers: dict[str, TrainerState], session: str | None) -> None:
        """Bring the slots to where their files have them.

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
        """Return the slot that a trainer works on."""
        return next((slot for slot in self.slots if slot.owner == trainer), None)

    def let_run(self, slot: Slot, trainer: str) -> None:
        """Let a trainer work on a slot for a lease."""
        slot.state, slot.owner, slot.heard = SlotState.RUNNING, trainer, False
        self.renew(slot)

    def renew(self, slot: Slot) -> None:
        """Give a running slot a fresh lease."""
        slot.lease_until_s = self.clock() + self.lease_policy.lease_s

    def release(self, trainer: str, cause: str) -> None:
        """Free the slot of a trainer, if it has one."""
        slot = self.held_by(trainer)
        if slot is not None:
            self.free(slot, cause)

    def free(self, slot: Slot, cause: str) -> None:
        """Take a slot from its trainer."""
        slot.free()
        if slot.trainer_failures >= self.lease_policy.max_attempts:
            self.failure = (
                f"{slot.name} lost its trainer {slot.trainer_failures} times and got no further; "
                f"runtime.max_attempts allows no more. The last time: {cause}"
            )

    def tick(self) -> bool:
        """Free the slots whose leases are over, and fill all of them where the round is late.

        Returns whether it was late, and is to be closed.
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
        if late_s is None or self.elapsed_s < late_s or not any(slot.n > 0 for slot in self.slots):
            return False
        for slot in self.slots:
            if slot.result is None:
                slot.cut_off()
                self.counters.tasks_cut_off += isinstance(slot.result, FilledSlot)
                self.counters.tasks_dropped += isinstance(slot.result, DroppedSlot)
        return True
