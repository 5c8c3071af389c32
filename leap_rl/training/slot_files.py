"""The files of an open round's slots: leases, snapshots, completed slots; agents and curves.

    NNN.lease         who works on slot NNN, at which attempt
    NNN.snapshot      its task frozen, with the sum so far
    NNN.safetensors   its whole sum and record: the slot is complete

Each is one sealed file, so that it is there whole or not at all, and damage is told. A damaged one
is set aside: what it held is computed again, to the same bits.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray
from safetensors.numpy import save

from leap_rl.messages import Bytes, CurvePoint, Episodes, FloatVector, TaskRecord
from leap_rl.run_folder import RunFolderError, write_atomically
from leap_rl.sealed import Arrays, SealError, seal, unseal
from leap_rl.tasks.task import TaskSpec
from leap_rl.training.rounds import FilledSlot

T = TypeVar("T")

_log = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True, slots=True)
class Lease:
    """Who works on a slot; on disk before its trainer hears of it."""

    attempt: int
    trainer: str | None
    """None when it is gone, with the driver that started it."""
    incarnation: int
    number: int
    """Of the claim that it answers."""
    losses: int
    """Trainers lost on the slot since its task last got further, by then."""
    durable_n: int
    """Segments behind the slot's snapshot by then."""


@dataclass(frozen=True, kw_only=True, slots=True)
class SlotSnapshot:
    """A slot's task frozen after ``n`` segments, with their sum, [P]."""

    n: int
    contribution: FloatVector
    snapshot: Bytes


class SlotFiles:
    """Reads and writes the files of one slot.

    Args:
        path: Where the completed slot goes; the others lie beside it.
        spec: The slot's task.
        fingerprint: SHA-256 of the run's defining config. A file of another task or run is refused.
    """

    def __init__(self, path: Path, spec: TaskSpec, fingerprint: str) -> None:
        self._path = path
        self._head = {"fingerprint": fingerprint, "spec": asdict(spec)}
        self._spec = spec

    def write_lease(self, lease: Lease) -> None:
        """Write who works on the slot, synced to disk before it returns."""
        self._write(self._path.with_suffix(".lease"), {}, asdict(lease))

    def read_lease(self) -> Lease | None:
        """Return who works on the slot, or none."""
        return self._read(self._path.with_suffix(".lease"), lambda _, header: Lease(**header))

    def write_snapshot(self, frozen: SlotSnapshot) -> None:
        """Write a frozen task, synced to disk before it returns."""
        arrays: Arrays = {"contribution": frozen.contribution, "snapshot": frozen.snapshot}
        self._write(self._path.with_suffix(".snapshot"), arrays, {"n": frozen.n})

    def read_snapshot(self) -> SlotSnapshot | None:
        """Return the newest frozen task, or none."""
        return self._read(
            self._path.with_suffix(".snapshot"),
            lambda arrays, header: SlotSnapshot(
                n=header["n"], contribution=arrays["contribution"], snapshot=arrays["snapshot"]
            ),
        )

    def write_filled(self, slot: FilledSlot) -> None:
        """Write a completed slot, synced to disk before it returns."""
        arrays = {"contribution": slot.contribution, **asdict(slot.episodes)}
        header = {"attempt": slot.attempt, "record": asdict(slot.record)}
        self._write(self._path, arrays, header)
        self._path.with_suffix(".snapshot").unlink(missing_ok=True)

    def read_filled(self) -> FilledSlot | None:
        """Return the completed slot, or none."""
        return self._read(self._path, self._filled)

    def _filled(self, arrays: dict[str, NDArray[Any]], header: dict[str, Any]) -> FilledSlot:
        record = dict(header["record"])
        record["curve"] = tuple(CurvePoint(**point) for point in record["curve"])
        return FilledSlot(
            spec=self._spec,
            attempt=int(header["attempt"]),
            contribution=arrays.pop("contribution"),
            record=TaskRecord(**record),
            episodes=Episodes(**arrays),
        )

    def _write(self, path: Path, arrays: Arrays, header: Mapping[str, Any]) -> None:
        write_atomically(path, seal(arrays, {**self._head, "content": header}))

    def _read(
        self, path: Path, make: Callable[[dict[str, NDArray[Any]], dict[str, Any]], T]
    ) -> T | None:
        """Return what a file holds; none where no file is, or a damaged one, which is set aside.

        Raises:
            RunFolderError: The file belongs to another task or run, or cannot be read.
        """
        try:
            arrays, header = unseal(path.read_bytes())
            content = header.pop("content")
            whole = make(arrays, content)
        except FileNotFoundError:
            return None
        except OSError as error:
            raise RunFolderError(f"{path}: cannot be read ({error.strerror})") from None
        except (SealError, ValueError, KeyError, TypeError) as error:
            aside = path.with_name(f"{path.name}.damaged")
            path.replace(aside)
            _log.warning("%s: is damaged: %s; what it held is computed again", aside, error)
            return None
        if header != self._head:
            raise RunFolderError(f"{path}: belongs to another task or run; delete it to go on")
        return whole


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
