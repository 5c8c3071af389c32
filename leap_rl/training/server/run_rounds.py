"""A run's rounds: opened with the policy's tasks, closed by it, and committed to disk."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from leap_rl.storage.run_folder import RunFolder
from leap_rl.tracking.status import RunStatus, TaskStatus
from leap_rl.training.faults import FaultPoint, OnFaultPoint, no_fault
from leap_rl.training.messages import Ticket
from leap_rl.training.rounds.policy import (
    ClosedRound,
    DroppedSlot,
    FilledRound,
    FilledSlot,
    RoundPolicy,
)
from leap_rl.training.server.carried_agents import CarriedAgents
from leap_rl.training.server.counters import Counters
from leap_rl.training.server.open_round import LeasePolicy, OpenRound, TrainerState
from leap_rl.training.server.slot_files import SlotFiles
from leap_rl.training.server.slots import Slot, SlotState


@dataclass(kw_only=True)
class RunRounds:
    """The open round of a run, and what was committed before it.

    Raises:
        RunFolderError: The folder holds what does not belong there, or cannot be read.
    """

    folder: RunFolder
    """The run's; holds at least checkpoint 0."""
    fingerprint: str
    """SHA-256 of the run's defining config; messages of another are refused."""
    policy: RoundPolicy
    """Restored from the folder's newest checkpoint."""
    lease_policy: LeasePolicy
    """When a slot is taken from its trainer, and a late round is closed."""
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
    """Fault-injection callback."""

    def __post_init__(self) -> None:
        latest = self.folder.latest()
        assert latest is not None, "a run is made with its checkpoint 0"
        self.folder.rely_on_locks()
        state = self.folder.read_state(latest)
        self.counters = Counters(server_restarts=int(self.trainers_live))
        for row in state["rows"]:
            self.counters.committed(row["axis"], row["values"])
        self._trainers: dict[str, TrainerState] = {}
        self._carried_agents = CarriedAgents(
            self.folder, self.fingerprint, state.get("carried_over", {})
        )
        self._closed: ClosedRound | None = None
        # The attempt that counted, by round and slot. A trainer repeats what it sent to a server
        # that died in answering it, and that can be no older than the last round.
        self._committed = {
            (latest - 1, index): int(slot["attempt"])
            for index, slot in enumerate(state.get("slots", ()))
        }
        self._open = self._open_round(latest, self.session if self.trainers_live else None)
        self._close_if_full()

    @property
    def _finished(self) -> bool:
        """Whether there is no more work, be it that the run has failed."""
        return self._open.number >= self.policy.rounds or self._open.failure is not None

    @property
    def has_work(self) -> bool:
        """Whether a trainer that claims now gets a task, or hears that there are no more."""
        return self._finished or any(slot.state is SlotState.PENDING for slot in self._open.slots)

    def status(self) -> RunStatus:
        """Return where the run stands."""
        slots = self._open.slots
        return RunStatus(
            round=self._open.number,
            rounds=self.policy.rounds,
            slots_complete=sum(slot.state is SlotState.COMPLETE for slot in slots),
            slots_total=len(slots),
            running=tuple(
                TaskStatus(
                    slot=slot.index,
                    game=slot.spec.game,
                    trainer=slot.owner,
                    attempt=slot.attempt,
                    progress=slot.progress,
                )
                for slot in slots
                if slot.owner is not None
            ),
            durable_segments=sum(
                slot.durable_n for slot in slots if slot.state is SlotState.RUNNING
            ),
            failure=self._open.failure,
        )

    def _is_counted(self, ticket: Ticket) -> bool:
        """Whether the ticket's attempt has completed its slot."""
        if ticket.round == self._open.number and ticket.slot < len(self._open.slots):
            slot = self._open.slots[ticket.slot]
            return slot.state is SlotState.COMPLETE and slot.attempt == ticket.attempt
        return self._committed.get((ticket.round, ticket.slot)) == ticket.attempt

    def _close_if_full(self) -> None:
        """Close the open round if all of its slots are complete, and open the next one.

        Raises:
            OSError: Something could not be written; the round does not count then.
        """
        results, number = self._open.results, self._open.number
        if results is None:
            return
        filled = {i: slot for i, slot in enumerate(results) if isinstance(slot, FilledSlot)}
        dropped = [slot for slot in results if isinstance(slot, DroppedSlot)]
        if all(slot.spec.validates for slot in filled.values()):
            self._open.failure = (
                f"round {number} has no task left: all were dropped, the first one since "
                f"{dropped[0].spec.game} {dropped[0].reason}"
            )
            return
        if self._closed is None:  # once, however often writing what it leaves may fail
            self._closed = self.policy.close(
                FilledRound(
                    number=number,
                    slots=list(filled.values()),
                    dropped=dropped,
                    elapsed_s=self._open.elapsed_s,
                )
            )
        self.folder.write(self.folder.curves(number), _episodes_file(number, filled))
        self._commit(number, results, self._closed)
        self._committed |= {(number, index): slot.attempt for index, slot in enumerate(results)}
        for row in self._closed.rows:
            self.counters.committed(row.axis, row.values)
        self._open = self._open_round(number + 1, self.session)
        self._closed = None  # only now: unless the next round opens, this one is committed again

    def _open_round(self, number: int, session: str | None) -> OpenRound:
        specs = () if number >= self.policy.rounds else self.policy.open(number)
        self.folder.remove_slots(number - 1)  # which a crash may have left
        opened = OpenRound(
            number=number,
            slots=[
                Slot(
                    index=index,
                    round=number,
                    spec=spec,
                    files=SlotFiles(
                        self.folder.slot(number, index), spec, self.fingerprint, folder=self.folder
                    ),
                )
                for index, spec in enumerate(specs)
            ],
            lease_policy=self.lease_policy,
            clock=self.clock,
            counters=self.counters,
        )
        opened.recover(self._trainers, session)
        return opened

    def _commit(
        self, number: int, results: Sequence[FilledSlot | DroppedSlot], closed: ClosedRound
    ) -> None:
        """Write a closed round's checkpoint, which makes the round count."""
        carried = self._carried_agents.after(number, results)
        state = {
            **closed.state,
            "fingerprint": self.fingerprint,
            "slots": [_entry(slot) for slot in results],
            "rows": [{"axis": row.axis, "values": dict(row.values)} for row in closed.rows],
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
        self._carried_agents.committed(carried)
        if self.keep_checkpoints is not None:
            self.folder.thin_out(self.keep_checkpoints)
        self.on_fault_point(FaultPoint.SERVER_COMMITTED)


def _entry(slot: FilledSlot | DroppedSlot) -> dict[str, Any]:
    """Return a checkpoint's entry of a slot."""
    entry = {**slot.spec.plain(), "attempt": slot.attempt, "restarts": slot.restarts}
    if isinstance(slot, DroppedSlot):
        return entry | {"dropped": slot.reason}
    entry |= {"trainer": slot.record.trainer, "processor": slot.record.processor}
    return entry | {"cut_off": True} if slot.cut_off else entry


def _episodes_file(round_number: int, slots: Mapping[int, FilledSlot]) -> bytes:
    """Return the Parquet file of the episodes of a round's slots.

    Columns: meta_step, slot, game, agent_steps (of the task, when the episode ended),
    episode_return (raw), length (agent steps).
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    counts = [len(slot.episodes.returns) for slot in slots.values()]
    episodes = [slot.episodes for slot in slots.values()]
    games = np.repeat([slot.spec.game.encode() for slot in slots.values()], counts).tolist()

    def column(values: NDArray[Any]) -> Any:
        return pa.Array.from_buffers(
            pa.from_numpy_dtype(values.dtype), len(values), [None, pa.py_buffer(values)]
        )

    # From buffers: pyarrow imports pandas, nearly a second of each start, to convert an array.
    offsets = np.cumsum([0, *map(len, games)], dtype=np.int32)
    table = pa.table(
        {
            "meta_step": column(np.full(sum(counts), round_number, dtype=np.int32)),
            "slot": column(np.repeat(np.array(list(slots), dtype=np.int32), counts)),
            "game": pa.StringArray.from_buffers(
                len(games), pa.py_buffer(offsets), pa.py_buffer(b"".join(games))
            ),
            "agent_steps": column(np.concatenate([one.agent_steps for one in episodes])),
            "episode_return": column(np.concatenate([one.returns for one in episodes])),
            "length": column(np.concatenate([one.lengths for one in episodes])),
        }
    )
    sink = pa.BufferOutputStream()
    pq.write_table(table, sink)
    return bytes(sink.getvalue().to_pybytes())
