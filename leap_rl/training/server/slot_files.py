"""The files of an open round's slots.

    NNN.lease         who works on slot NNN, at which attempt
    NNN.snapshot      its task's snapshot, with the sum so far
    NNN.safetensors   its whole sum and record, or why it was dropped: the slot is complete

Each is one sealed file, there whole or not at all. A damaged one is set aside, with a warning: what
it held is computed again, to the same bits.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, TypeVar

from numpy.typing import NDArray

from leap_rl.learners.task import TaskSpec
from leap_rl.storage.checked import checked
from leap_rl.storage.links import read_regular
from leap_rl.storage.locked_folder import RunFolderError
from leap_rl.storage.run_folder import RunFolder
from leap_rl.storage.sealed import Arrays, SealError, seal, unseal
from leap_rl.training.messages import Bytes, CurvePoint, Episodes, FloatVector, TaskRecord
from leap_rl.training.rounds.policy import DroppedSlot, FilledSlot

T = TypeVar("T")

_log = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True, slots=True)
class Lease:
    """Which trainer works on a slot; on disk before the trainer gets its answer."""

    attempt: int
    trainer: str | None = None
    """None where the slot waits for its next attempt."""
    incarnation: int = 0
    number: int = 0
    """Of the claim that it answers."""
    trainer_failures: int = 0
    """Trainers lost on the slot since its task last got further, by then."""
    durable_n: int = 0
    """Segments behind the slot's snapshot by then."""
    restarts: int = 0
    """How often the slot's task was started again with another seed."""
    session: str = ""
    """Of the driver that started the trainer; nothing in leases of older versions."""


@dataclass(frozen=True, kw_only=True, slots=True)
class SlotSnapshot:
    """A snapshot of a slot's task after ``n`` segments, with their sum, [P]."""

    restarts: int
    """How often the task had been started again."""
    n: int
    contribution: FloatVector
    snapshot: Bytes


class SlotFiles:
    """Reads and writes the files of one slot; those of another task or run are refused.

    All that is written is synced to disk before the call returns. `path` is the completed slot's;
    the others lie beside it.
    """

    def __init__(self, path: Path, spec: TaskSpec, fingerprint: str, *, folder: RunFolder) -> None:
        self._folder = folder
        self._path = path
        self._head = {"fingerprint": fingerprint, "spec": spec.plain()}
        self._spec = spec

    def write_lease(self, lease: Lease) -> None:
        """Write who works on the slot."""
        self._write(self._path.with_suffix(".lease"), {}, asdict(lease))

    def read_lease(self) -> Lease | None:
        """Return who works on the slot, or none."""
        path = self._path.with_suffix(".lease")
        return self._read(path, lambda _, header: checked(Lease, header))

    def write_snapshot(self, taken: SlotSnapshot) -> None:
        """Write a snapshot, with its sum."""
        arrays: Arrays = {"contribution": taken.contribution, "snapshot": taken.snapshot}
        header = {"n": taken.n, "restarts": taken.restarts}
        self._write(self._path.with_suffix(".snapshot"), arrays, header)

    def read_snapshot(self, *, restarts: int) -> SlotSnapshot | None:
        """Return the newest snapshot of the task after so many restarts, or none."""
        taken = self._read(
            self._path.with_suffix(".snapshot"),
            lambda arrays, header: checked(SlotSnapshot, {**header, **arrays}),
        )
        return None if taken is None or taken.restarts != restarts else taken

    def write_result(self, slot: FilledSlot | DroppedSlot) -> None:
        """Write what completes the slot."""
        header: dict[str, Any] = {"attempt": slot.attempt, "restarts": slot.restarts}
        if isinstance(slot, DroppedSlot):
            arrays: Arrays = {}
            header["dropped"] = {"reason": slot.reason, "agent_steps": slot.agent_steps}
        else:
            agent = {} if slot.carried_agent is None else {"agent": slot.carried_agent}
            arrays = {"contribution": slot.contribution, **asdict(slot.episodes), **agent}
            header |= {"cut_off": slot.cut_off, "record": asdict(slot.record)}
        self._write(self._path, arrays, header)
        self._folder.remove(self._path.with_suffix(".snapshot"))

    def read_result(self) -> FilledSlot | DroppedSlot | None:
        """Return what completed the slot, or none."""
        return self._read(self._path, self._result)

    def _result(
        self, arrays: dict[str, NDArray[Any]], header: dict[str, Any]
    ) -> FilledSlot | DroppedSlot:
        attempt, restarts = int(header["attempt"]), int(header["restarts"])
        if "dropped" in header:
            dropped = {"attempt": attempt, "restarts": restarts, **header["dropped"]}
            return checked(DroppedSlot, {"spec": self._spec, **dropped})
        record = dict(header["record"])
        record["curve"] = tuple(checked(CurvePoint, point) for point in record["curve"])
        return FilledSlot(
            spec=self._spec,
            attempt=attempt,
            restarts=restarts,
            cut_off=bool(header["cut_off"]),
            contribution=arrays.pop("contribution"),
            carried_agent=arrays.pop("agent", None),
            record=checked(TaskRecord, record),
            episodes=Episodes(**arrays),
        )

    def _write(self, path: Path, arrays: Arrays, header: Mapping[str, Any]) -> None:
        self._folder.write(path, seal(arrays, {**self._head, "content": header}))

    def _read(
        self, path: Path, make: Callable[[dict[str, NDArray[Any]], dict[str, Any]], T]
    ) -> T | None:
        """Return what a file holds; none where no file is, or a damaged one, which is set aside.

        Raises:
            RunFolderError: The file belongs to another task or run, or cannot be read.
        """
        try:
            arrays, header = unseal(read_regular(path))
            content = header.pop("content")
            whole = make(arrays, content)
        except FileNotFoundError:
            return None
        except OSError as error:
            raise RunFolderError(f"{path}: cannot be read ({error.strerror})") from None
        except (SealError, ValueError, KeyError, TypeError) as error:
            aside = self._folder.set_aside(path)
            _log.warning("%s: is damaged: %s; what it held is computed again", aside, error)
            return None
        if header != self._head:
            raise RunFolderError(f"{path}: belongs to another task or run; delete it to continue")
        return whole
