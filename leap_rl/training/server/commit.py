"""What a round leaves on disk when it closes: its checkpoint, its episodes, trained agents."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from safetensors.numpy import save

from leap_rl.storage.run_folder import RunFolder
from leap_rl.training.faults.points import FaultPoint, OnFaultPoint
from leap_rl.training.rounds.policy import ClosedRound, DroppedSlot, FilledSlot
from leap_rl.training.server.kept_agents import KeptAgents


def commit_round(
    folder: RunFolder,
    round_number: int,
    results: Sequence[FilledSlot | DroppedSlot],
    closed: ClosedRound,
    *,
    kept_agents: KeptAgents,
    fingerprint: str,
    keep_checkpoints: int | None = None,
    on_fault_point: OnFaultPoint,
) -> None:
    """Write a closed round's episodes and its checkpoint, which makes the round count.

    Args:
        folder: The run's.
        round_number: The round that closes; its checkpoint has the next number.
        results: What completed its slots, in slot order.
        closed: What the policy made of them.
        kept_agents: Those that go on from round to round.
        fingerprint: SHA-256 of the run's defining config.
        keep_checkpoints: Of how many checkpoints the parameters stay; none for all.
        on_fault_point: Fault-injection callback.

    Raises:
        OSError: Something could not be written; the round does not count then.
    """
    filled = [slot for slot in results if isinstance(slot, FilledSlot)]
    indices = [index for index, slot in enumerate(results) if isinstance(slot, FilledSlot)]
    folder.write(folder.curves(round_number), curves(round_number, indices, filled))
    kept = kept_agents.after(round_number, results)
    state = {
        **closed.state,
        "fingerprint": fingerprint,
        "slots": [_entry(slot) for slot in results],
        "rows": [{"axis": row.axis, "values": dict(row.values)} for row in closed.rows],
    }
    if kept:
        state["kept"] = kept
    if closed.best is not None:
        folder.point_best(closed.best)  # it is there: this round began with it, or one before
    on_fault_point(FaultPoint.SERVER_STEPPING)
    folder.write_checkpoint(
        round_number + 1,
        closed.files,
        state,
        before_latest=lambda: on_fault_point(FaultPoint.SERVER_WRITING),
    )
    kept_agents.committed(kept)
    if keep_checkpoints is not None:
        folder.thin_out(keep_checkpoints)
    on_fault_point(FaultPoint.SERVER_COMMITTED)


def _entry(slot: FilledSlot | DroppedSlot) -> dict[str, Any]:
    """Return what a checkpoint says of a slot."""
    entry = {**slot.spec.plain(), "attempt": slot.attempt, "restarts": slot.restarts}
    if isinstance(slot, DroppedSlot):
        return entry | {"dropped": slot.reason}
    entry |= {"trainer": slot.record.trainer, "processor": slot.record.processor}
    return entry | {"cut_off": True} if slot.cut_off else entry


def agent_file(agent: Mapping[str, NDArray[np.float32]]) -> bytes:
    """Return the file of a trained agent's parameters by name."""
    return bytes(save({name: np.ascontiguousarray(x) for name, x in agent.items()}))


def curves(round_number: int, indices: Sequence[int], slots: Sequence[FilledSlot]) -> bytes:
    """Return the Parquet file of a round's episodes.

    Columns: meta_step, slot, game, agent_steps (of the task, when the episode ended),
    episode_return (raw), length (agent steps).

    Args:
        round_number: The round.
        indices: The slots' places in its batch.
        slots: The slots.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    counts = [len(slot.episodes.returns) for slot in slots]
    games = [
        slot.spec.game for slot, count in zip(slots, counts, strict=True) for _ in range(count)
    ]
    table = pa.table(
        {
            "meta_step": np.full(sum(counts), round_number, dtype=np.int32),
            "slot": np.repeat(np.array(indices, dtype=np.int32), counts),
            "game": pa.array(games, type=pa.string()),
            "agent_steps": np.concatenate([slot.episodes.agent_steps for slot in slots]),
            "episode_return": np.concatenate([slot.episodes.returns for slot in slots]),
            "length": np.concatenate([slot.episodes.lengths for slot in slots]),
        }
    )
    sink = pa.BufferOutputStream()
    pq.write_table(table, sink)
    return bytes(sink.getvalue().to_pybytes())
