"""The files of completed slots: contributions, records, agents and episode curves.

A completed slot is one safetensors file whose header carries the record as JSON, so that it is
there whole or not at all.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save

from leap_rl.messages import CurvePoint, Episodes, TaskRecord
from leap_rl.run_folder import RunFolderError, write_atomically
from leap_rl.tasks.task import TaskSpec
from leap_rl.training.rounds import FilledSlot

_RECORD = "leap_rl"


def write_slot(path: Path, slot: FilledSlot, fingerprint: str) -> None:
    """Write a completed slot whole, synced to disk before it returns."""
    header = {
        "fingerprint": fingerprint,
        "attempt": slot.attempt,
        "spec": asdict(slot.spec),
        "record": asdict(slot.record),
    }
    tensors: dict[str, NDArray[Any]] = {
        "contribution": np.ascontiguousarray(slot.contribution),
        **asdict(slot.episodes),
    }
    write_atomically(path, save(tensors, {_RECORD: json.dumps(header, allow_nan=False)}))


def read_slot(path: Path, spec: TaskSpec, fingerprint: str) -> FilledSlot | None:
    """Return the completed slot at ``path``, or none where no file is.

    Raises:
        RunFolderError: The file is damaged or belongs to another task or run.
    """
    if not path.exists():
        return None
    try:
        with safe_open(path, framework="numpy") as file:
            header = json.loads(file.metadata()[_RECORD])
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
        record = dict(header["record"])
        record["curve"] = tuple(CurvePoint(**point) for point in record["curve"])
        contribution = tensors.pop("contribution")
        slot = FilledSlot(
            spec=TaskSpec(**header["spec"]),
            attempt=int(header["attempt"]),
            contribution=contribution,
            record=TaskRecord(**record),
            episodes=Episodes(**tensors),
        )
    except (OSError, SafetensorError, ValueError, KeyError, TypeError) as error:
        raise RunFolderError(
            f"{path}: is damaged ({error}); delete it to have its task trained again"
        ) from None
    if header["fingerprint"] != fingerprint or slot.spec != spec:
        raise RunFolderError(f"{path}: belongs to another task or run; delete it to go on")
    return slot


def write_agent(path: Path, agent: Mapping[str, NDArray[np.float32]]) -> None:
    """Write a trained agent's parameters by name."""
    write_atomically(path, save({name: np.ascontiguousarray(x) for name, x in agent.items()}))


def write_curves(path: Path, round_number: int, slots: Sequence[FilledSlot]) -> None:
    """Write a round's episodes to Parquet.

    Columns: meta_step, slot, game, agent_steps (of the task, when the episode ended),
    episode_return (raw), length (agent steps).
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    counts = [len(slot.episodes.returns) for slot in slots]
    indices = np.repeat(np.arange(len(slots), dtype=np.int32), counts)
    table = pa.table(
        {
            "meta_step": np.full(sum(counts), round_number, dtype=np.int32),
            "slot": indices,
            "game": pa.array([slots[int(index)].spec.game for index in indices], type=pa.string()),
            "agent_steps": np.concatenate([slot.episodes.agent_steps for slot in slots]),
            "episode_return": np.concatenate([slot.episodes.returns for slot in slots]),
            "length": np.concatenate([slot.episodes.lengths for slot in slots]),
        }
    )
    sink = pa.BufferOutputStream()
    pq.write_table(table, sink)
    write_atomically(path, sink.getvalue().to_pybytes())
