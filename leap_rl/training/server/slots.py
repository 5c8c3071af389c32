"""A place in the open round's batch: its states, and the files that survive the server.

            claim                       complete, or dropped
PENDING ------------> RUNNING(a, n) -------------------------> COMPLETE
   ^                        |
   +------------------------+
    lease over, trainer lost, its trainer claims again,
    or the task is to start again with another seed

    NNN.lease         which trainer works on slot NNN, at which attempt
    NNN.snapshot      its task's snapshot, with the sum so far
    NNN.safetensors   its whole sum and record, or why it was dropped: the slot is complete

Each file is sealed, and there whole or not at all. A damaged one is set aside: what it held is
computed again, to the same bits. The server's log has a warning, which on a Ray cluster of the
run's own nobody sees: its logs go with it.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from enum import Enum
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from leap_rl.core.regular_file import read_regular
from leap_rl.core.seeding import Purpose, derive_seed
from leap_rl.learners.task import TaskSpec
from leap_rl.storage.checksummed_file import Arrays, ChecksumError, decode_arrays, encode_arrays
from leap_rl.storage.dataclass_from_json import dataclass_from_json
from leap_rl.storage.locked_folder import RunFolderError
from leap_rl.storage.run_folder import RunFolder
from leap_rl.training import messages
from leap_rl.training.rounds.plan import DroppedSlot, FilledSlot

T = TypeVar("T")

_log = logging.getLogger(__name__)


# -- the state machine ------------------------------------------------------------------------


class SlotState(Enum):
    """Where a slot stands; see the picture above."""

    PENDING = "pending"
    RUNNING = "running"
    COMPLETE = "complete"


@dataclass(kw_only=True, slots=True)
class Slot:
    """A place in the open round's batch."""

    index: int
    round: int
    spec: TaskSpec
    files: SlotFiles
    state: SlotState = SlotState.PENDING
    attempt: int = 0
    """The newest attempt handed out; 0 before the first."""
    owner: str | None = None
    """The trainer that works on it while RUNNING."""
    heard: bool = False
    """Whether the owner has streamed, and so has got its assignment."""
    lease_until_s: float = 0.0
    trainer_failures: int = 0
    """Trainer failures since the last durable progress."""
    restarts: int = 0
    """How often its task was started again with another seed."""
    n: int = 0
    """Segments in ``contribution``."""
    durable_n: int = 0
    """Segments behind the snapshot on disk; 0 without one."""
    contribution: messages.FloatVector | None = None
    """The newest sum of the newest attempt, [P]."""
    summed_steps: int = 0
    """Agent steps of the task behind ``contribution``."""
    progress: messages.TaskProgress = field(default_factory=messages.TaskProgress, repr=False)
    counted_steps: int | None = None
    """Agent steps of the task that are counted; None before this server has heard of it."""
    result: FilledSlot | DroppedSlot | None = field(default=None, repr=False)
    """The result that completed it."""

    @property
    def task_seed(self) -> int:
        """The seed of the slot's task: its own, or after a restart one derived from it."""
        if self.restarts == 0:
            return self.spec.seed
        return derive_seed(self.spec.seed, Purpose.RESTART, self.restarts)

    @property
    def name(self) -> str:
        where = f"slot {self.index} of round {self.round}"
        return f"{self.spec.game} ({where}, task seed {self.task_seed})"

    def new_steps(self, agent_steps: int) -> int:
        """Count a task's agent steps; returns how many are new.

        After a server's death, those between its last message and this one's first are not counted.
        """
        before = agent_steps if self.counted_steps is None else self.counted_steps
        self.counted_steps = agent_steps
        return max(0, agent_steps - before)

    def hand_out(self, claim: messages.Claim, session: str) -> None:
        """Write the next attempt's lease: the claim's trainer, under a driver's session."""
        self.attempt += 1
        self.files.write_lease(
            Lease(
                attempt=self.attempt,
                trainer=claim.trainer,
                incarnation=claim.incarnation,
                number=claim.number,
                trainer_failures=self.trainer_failures,
                durable_n=self.durable_n,
                restarts=self.restarts,
                session=session,
            )
        )

    def roll_back(self) -> messages.Bytes | None:
        """Return to the newest snapshot, or to the task's start; returns the snapshot."""
        taken = self.files.read_snapshot(restarts=self.restarts)
        self.progress = messages.TaskProgress()
        if taken is None:
            self.n, self.durable_n, self.contribution, self.summed_steps = 0, 0, None, 0
            return None
        self.n, self.durable_n, self.contribution = taken.n, taken.n, taken.contribution
        self.summed_steps = taken.agent_steps
        return taken.snapshot

    def write_snapshot(self, message: messages.Stream, snapshot: messages.Bytes) -> None:
        self.files.write_snapshot(
            SlotSnapshot(
                restarts=self.restarts,
                n=message.n,
                contribution=message.contribution,
                snapshot=snapshot,
                agent_steps=message.progress.agent_steps,
            )
        )
        self.durable_n, self.trainer_failures = message.n, 0

    def free(self) -> None:
        self._leave(SlotState.PENDING)
        self.trainer_failures += 1

    def restart(self) -> None:
        """Start its task again from the initialization, with the next seed; written to disk."""
        restarts = self.restarts + 1
        self.files.write_lease(Lease(attempt=self.attempt, restarts=restarts))
        self.restarts, self.trainer_failures = restarts, 0
        self.n, self.durable_n, self.contribution, self.summed_steps = 0, 0, None, 0
        self._leave(SlotState.PENDING)

    def fill(
        self,
        contribution: messages.FloatVector,
        record: messages.TaskRecord,
        episodes: messages.Episodes,
        *,
        carried_agent: messages.Bytes | None = None,
        cut_off: bool = False,
    ) -> None:
        """Complete it with a sum, [P]."""
        self._complete(
            FilledSlot(
                spec=self.spec,
                attempt=self.attempt,
                restarts=self.restarts,
                cut_off=cut_off,
                contribution=contribution,
                record=record,
                episodes=episodes,
                carried_agent=carried_agent,
            )
        )
        self.contribution = contribution

    def drop(self, reason: str, agent_steps: int) -> None:
        self._complete(
            DroppedSlot(
                spec=self.spec,
                attempt=self.attempt,
                restarts=self.restarts,
                reason=reason,
                agent_steps=agent_steps,
            )
        )

    def cut_off(self) -> None:
        """Complete it with its newest sum, without episodes and losses; drop it if it has none."""
        agent_steps = self.summed_steps
        if self.contribution is None or self.n == 0:
            self.drop("had no sum when its round closed, after meta.close_after_s", agent_steps)
            return
        record = messages.TaskRecord(
            trainer=self.owner or "",
            processor="",
            updates=self.n,
            agent_steps=agent_steps,
        )
        episodes = messages.Episodes(
            agent_steps=np.empty(0, dtype=np.int64),
            returns=np.empty(0, dtype=np.float64),
            lengths=np.empty(0, dtype=np.int64),
        )
        self.fill(self.contribution, record, episodes, cut_off=True)

    def take(self, result: FilledSlot | DroppedSlot) -> None:
        self._leave(SlotState.COMPLETE)
        self.attempt, self.restarts = result.attempt, result.restarts
        self.result = result

    def _complete(self, result: FilledSlot | DroppedSlot) -> None:
        self.files.write_result(result)  # before it counts
        self.take(result)

    def _leave(self, state: SlotState) -> None:
        self.state, self.owner, self.progress = state, None, messages.TaskProgress()


# -- the files --------------------------------------------------------------------------------


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
    """Trainer failures up to this lease since the last durable progress."""
    durable_n: int = 0
    """Segments behind the slot's snapshot at this lease."""
    restarts: int = 0
    """How often the slot's task was started again with another seed."""
    session: str = ""
    """Of the driver that started the trainer."""


@dataclass(frozen=True, kw_only=True, slots=True)
class SlotSnapshot:
    """A snapshot of a slot's task after ``n`` segments, with their sum, [P]."""

    restarts: int
    """How often the task had been started again."""
    n: int
    contribution: messages.FloatVector
    snapshot: messages.Bytes
    agent_steps: int = 0
    """Of the task so far; 0 where an older leap_rl wrote it."""


_EPISODES = {"agent_steps": np.int64, "returns": np.float64, "lengths": np.int64}
_KINDS = {"contribution": np.float32, "snapshot": np.uint8, "agent": np.uint8, **_EPISODES}
"""Of the arrays in a slot's files, each a vector."""


class SlotFiles:
    """Reads and writes the files of one slot; those of another task or run are refused.

    All that is written is synced to disk before the call returns. `path` is the completed slot's;
    the others lie beside it. `parameters` says how many numbers a sum has, if that is known.
    """

    def __init__(
        self,
        path: Path,
        spec: TaskSpec,
        fingerprint: str,
        *,
        folder: RunFolder,
        parameters: Callable[[], int] | None = None,
    ) -> None:
        self._folder = folder
        self._parameters = parameters
        self._path = path
        self._head = {"fingerprint": fingerprint, "spec": spec.plain()}
        self._spec = spec

    def write_lease(self, lease: Lease) -> None:
        self._write(self._path.with_suffix(".lease"), {}, asdict(lease))

    def read_lease(self) -> Lease | None:
        path = self._path.with_suffix(".lease")
        return self._read(path, lambda _, header: dataclass_from_json(Lease, header))

    def write_snapshot(self, taken: SlotSnapshot) -> None:
        arrays: Arrays = {"contribution": taken.contribution, "snapshot": taken.snapshot}
        header = {"n": taken.n, "restarts": taken.restarts, "agent_steps": taken.agent_steps}
        self._write(self._path.with_suffix(".snapshot"), arrays, header)

    def read_snapshot(self, *, restarts: int) -> SlotSnapshot | None:
        """Return the newest snapshot of the task after so many restarts, or none."""
        taken = self._read(
            self._path.with_suffix(".snapshot"),
            lambda arrays, header: dataclass_from_json(
                SlotSnapshot, {**header, **self._checked(arrays)}
            ),
        )
        return None if taken is None or taken.restarts != restarts else taken

    def write_result(self, slot: FilledSlot | DroppedSlot) -> None:
        """Write what completes the slot, and remove its snapshot."""
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
        return self._read(self._path, self._result)

    def _result(
        self, arrays: dict[str, NDArray[Any]], header: dict[str, Any]
    ) -> FilledSlot | DroppedSlot:
        attempt, restarts = header["attempt"], header["restarts"]
        if not all(type(number) is int and 0 <= number < 2**31 for number in (attempt, restarts)):
            raise ValueError(f"attempt = {attempt!r:.40}, restarts = {restarts!r:.40}")
        if "dropped" in header:
            dropped = {"attempt": attempt, "restarts": restarts, **header["dropped"]}
            return dataclass_from_json(DroppedSlot, {"spec": self._spec, **dropped})
        self._checked(arrays)
        record = dict(header["record"])
        record["curve"] = tuple(
            dataclass_from_json(messages.CurvePoint, point) for point in record["curve"]
        )
        return FilledSlot(
            spec=self._spec,
            attempt=attempt,
            restarts=restarts,
            cut_off=bool(header["cut_off"]),
            contribution=arrays.pop("contribution"),
            carried_agent=arrays.pop("agent", None),
            record=dataclass_from_json(messages.TaskRecord, record),
            episodes=messages.Episodes(**arrays),
        )

    def _checked(self, arrays: dict[str, NDArray[Any]]) -> dict[str, NDArray[Any]]:
        """Return a file's arrays; ValueError if they are not of the kinds that it holds."""
        for name, array in arrays.items():
            kind = _KINDS.get(name)
            if kind is None or array.dtype != kind or array.ndim != 1:
                raise ValueError(f"{name} is {array.dtype} {list(array.shape)}")
        size = arrays["contribution"].size
        if self._parameters is not None and size != self._parameters():
            raise ValueError(f"its sum has {size} numbers")
        if len({arrays[name].size for name in _EPISODES if name in arrays}) > 1:
            raise ValueError("its episodes are of several lengths")
        return arrays

    def _write(self, path: Path, arrays: Arrays, header: Mapping[str, Any]) -> None:
        self._folder.write(path, encode_arrays(arrays, {**self._head, "content": header}))

    def _read(
        self, path: Path, make: Callable[[dict[str, NDArray[Any]], dict[str, Any]], T]
    ) -> T | None:
        """Return what a file holds; none where no file is, or a damaged one, which is set aside.

        Raises:
            RunFolderError: The file belongs to another task or run, or cannot be read.
        """
        try:
            arrays, header = decode_arrays(read_regular(path))
            content = header.pop("content")
            whole = make(arrays, content)
        except FileNotFoundError:
            return None
        except OSError as error:
            raise RunFolderError(f"{path}: cannot be read ({error.strerror})") from None
        except (ChecksumError, ValueError, KeyError, TypeError) as error:
            aside = self._folder.set_aside(path)
            _log.warning("%s: is damaged: %s; what it held is computed again", aside, error)
            return None
        if header != self._head:
            raise RunFolderError(f"{path}: belongs to another task or run; delete it to continue")
        return whole
