"""What a round leaves on disk when it closes: its checkpoint, its episodes, trained agents."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from leap_rl.storage.run_folder import RunFolder
from leap_rl.training.faults.points import FaultPoint, OnFaultPoint
from leap_rl.training.rounds.policy import (
    ClosedRound,
    DroppedSlot,
    FilledSlot,
    LoggedRow,
    RoundPolicy,
)
from leap_rl.training.server.kept_agents import KeptAgents
from leap_rl.training.server.open_round import OpenRound


class Committer:
    """Closes a run's rounds. A round counts when its checkpoint is on disk.

    Args:
        folder: The run's.
        fingerprint: SHA-256 of the run's defining config.
        policy: Averages and steps.
        kept_agents: Agents that are carried over from round to round.
        keep_checkpoints: Of how many checkpoints the parameters stay; none for all.
        on_fault_point: Fault-injection callback.
    """

    def __init__(
        self,
        folder: RunFolder,
        fingerprint: str,
        policy: RoundPolicy,
        kept_agents: KeptAgents,
        *,
        keep_checkpoints: int | None,
        on_fault_point: OnFaultPoint,
    ) -> None:
        self._folder = folder
        self._fingerprint = fingerprint
        self._policy = policy
        self._kept_agents = kept_agents
        self._keep_checkpoints = keep_checkpoints
        self._on_fault_point = on_fault_point
        self._closed: tuple[int, ClosedRound] | None = None

    def commit(
        self, opened: OpenRound, results: Sequence[FilledSlot | DroppedSlot]
    ) -> Sequence[LoggedRow]:
        """Close a round on its slots' results, in slot order; returns its rows.

        It steps once, however often writing what it leaves may fail.

        Raises:
            OSError: Something could not be written; the round does not count then.
        """
        number = opened.number
        filled = {i: slot for i, slot in enumerate(results) if isinstance(slot, FilledSlot)}
        dropped = [slot for slot in results if isinstance(slot, DroppedSlot)]
        if self._closed is None or self._closed[0] != number:
            closed = self._policy.close(
                number, list(filled.values()), dropped=dropped, elapsed_s=opened.elapsed_s
            )
            self._closed = number, closed
        closed = self._closed[1]
        self._folder.write(self._folder.curves(number), _episodes_file(number, filled))
        kept = self._kept_agents.after(number, results)
        state = {
            **closed.state,
            "fingerprint": self._fingerprint,
            "slots": [_entry(slot) for slot in results],
            "rows": [{"axis": row.axis, "values": dict(row.values)} for row in closed.rows],
        }
        if kept:
            state["kept"] = kept
        if closed.best is not None:
            # Its checkpoint is there: this round began with it, or one before.
            self._folder.point_best(closed.best)
        self._on_fault_point(FaultPoint.SERVER_STEPPING)
        self._folder.write_checkpoint(
            number + 1,
            closed.files,
            state,
            before_latest=lambda: self._on_fault_point(FaultPoint.SERVER_WRITING),
        )
        self._kept_agents.committed(kept)
        if self._keep_checkpoints is not None:
            self._folder.thin_out(self._keep_checkpoints)
        self._on_fault_point(FaultPoint.SERVER_COMMITTED)
        return closed.rows


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
    games = np.repeat(np.array([slot.spec.game for slot in slots.values()], dtype=object), counts)
    episodes = [slot.episodes for slot in slots.values()]
    table = pa.table(
        {
            "meta_step": np.full(sum(counts), round_number, dtype=np.int32),
            "slot": np.repeat(np.array(list(slots), dtype=np.int32), counts),
            "game": pa.array(games, type=pa.string()),
            "agent_steps": np.concatenate([one.agent_steps for one in episodes]),
            "episode_return": np.concatenate([one.returns for one in episodes]),
            "length": np.concatenate([one.lengths for one in episodes]),
        }
    )
    sink = pa.BufferOutputStream()
    pq.write_table(table, sink)
    return bytes(sink.getvalue().to_pybytes())
