"""The lock of a run in an object store: one driver at a time works on it, and says who it is.

    URL/.lock    {"session": ..., "held": true, and what a lock on a disk says}

A store has no locks that end with their process. So the holder renews its record, and one whose
record stays the same for a minute is taken for dead, by the clock of who waits. One that was only
cut off for so long looks before it writes anything again (`confirm`), finds another's record there,
and stops.
"""

from __future__ import annotations

import json
import math
import time
import uuid
from collections.abc import Callable, Collection
from contextlib import suppress
from dataclasses import asdict, dataclass
from typing import Any, Final

from leap_rl.storage.conditional import ChangedError
from leap_rl.storage.object_store import ObjectStore
from leap_rl.storage.run_lock import ALIVE_S, Holder, LockedError, holder_of, this_process

NAME: Final = ".lock"

LOOK_EVERY_S: Final = 2.0

TRUSTED_S: Final = ALIVE_S / 3
"""Within this time after a renewal nobody else can have taken the run over."""

SETTLE_S: Final = 1.0
"""Of two that come at the same time, the one that wrote last has it."""


def _seconds_awake_or_not() -> float:
    if hasattr(time, "CLOCK_BOOTTIME"):
        return time.clock_gettime(time.CLOCK_BOOTTIME)
    return time.monotonic()


class DeposedError(Exception):
    """Another driver has taken the run over."""


@dataclass(frozen=True, kw_only=True)
class Record:
    """What a lock says."""

    session: str
    """Drawn again by each driver; the last one's stays when it is gone."""
    held: bool
    holder: Holder


class StoreLock:
    """The lock of one run.

    Args:
        store: The run's.
        say: Hears why there is a wait.
        sleep: Waits for so many seconds.
        alive_s: How long a holder may be silent.
        clock: Monotonic seconds, those in which this machine was asleep included.
    """

    def __init__(
        self,
        store: ObjectStore,
        *,
        say: Callable[[str], None],
        sleep: Callable[[float], None] = time.sleep,
        alive_s: float = ALIVE_S,
        clock: Callable[[], float] = _seconds_awake_or_not,
    ) -> None:
        self.session = uuid.uuid4().hex
        self._store = store
        self._say = say
        self._sleep = sleep
        self._alive_s = alive_s
        self._clock = clock
        self._started = time.time()
        self._renewed_s = -math.inf

    def read(self) -> Record | None:
        """Return who holds the lock, or held it last; none where nobody has yet."""
        try:
            record = json.loads(self._store.read(NAME) or b"")
            holder = holder_of(record)
            session, held = record["session"], record["held"]
        except (ValueError, KeyError, TypeError):
            return None
        if holder is None or not isinstance(session, str):
            return None
        return Record(session=session, held=held is True, holder=holder)

    def acquire(
        self,
        *,
        own: Collection[str] = (),
        announce: Callable[[Record | None], None] = lambda last: None,
    ) -> Record | None:
        """Take the lock; waits until a holder that is silent can be taken for dead.

        Args:
            own: The sessions of the working copy whose lock is held: known to be over.
            announce: Hears what the lock says, right before it is written over.

        Returns:
            What it said before.

        Raises:
            LockedError: Its holder is alive.
            StoreError: The store cannot be reached.
        """
        tag, before = self._store.tag(NAME), self.read()  # what is read is no older than the tag
        if before is not None and before.held and not self._is_over(before, own):
            tag = self._wait_for_silence(before, tag)
        announce(before)
        try:
            self._write(held=True, over=tag)
        except ChangedError:  # another one came at the same time
            now = self.read()
            raise LockedError(None if now is None else now.holder) from None
        self._settle()
        return before

    def _settle(self) -> None:
        self._sleep(SETTLE_S)
        now = self.read()
        if now is None or now.session != self.session:
            raise LockedError(None if now is None else now.holder)

    def renew(self) -> None:
        """Say that the holder is alive.

        Raises:
            DeposedError: Another one has the lock by now.
            StoreError: The store cannot be reached.
        """
        tag, now = self._store.tag(NAME), self.read()
        if now is not None and now.session != self.session:
            raise DeposedError(str(now.holder))
        try:
            self._write(held=True, over=tag)
        except ChangedError:
            now = self.read()
            if now is not None and now.session != self.session:
                raise DeposedError(str(now.holder)) from None

    def confirm(self) -> None:
        """See to it that what is written now is not written over another driver's run.

        Raises:
            DeposedError: Another one has the lock by now.
            StoreError: The store cannot be reached.
        """
        if self._clock() > self._renewed_s + TRUSTED_S:
            self.renew()

    def release(self) -> None:
        """Give the lock back; its record goes on to say who had it."""
        tag, now = self._store.tag(NAME), self.read()
        if now is not None and now.session == self.session:
            with suppress(ChangedError):
                self._write(held=False, over=tag)

    @staticmethod
    def _is_over(record: Record, own: Collection[str]) -> bool:
        return record.session in own or record.holder.is_known_dead

    def _wait_for_silence(self, before: Record, tag: str | None) -> str | None:
        """Return the tag of the record that is written over: it says who is gone, or dead."""
        began = time.monotonic()
        self._say(
            f"{self._store.url}: {before.holder} works on it, or has died: waiting up to "
            f"{self._alive_s:.0f} s to see which"
        )
        while time.monotonic() - began < self._alive_s:
            self._sleep(LOOK_EVERY_S)
            newer, now = self._store.tag(NAME), self.read()
            if now is not None and now != before:
                if not now.held:
                    return newer
                raise LockedError(now.holder)
        return tag

    def _write(self, *, held: bool, over: str | None) -> None:
        holder = asdict(this_process(self._started))
        record: dict[str, Any] = {"session": self.session, "held": held, **holder}
        asked_s = self._clock()
        self._store.replace(NAME, json.dumps(record).encode(), over)
        self._renewed_s = asked_s  # a write that took long may be an old one


def living(lock: StoreLock) -> Holder | None:
    """Return who works on a run, as far as its lock tells."""
    with suppress(OSError):
        record = lock.read()
        if record is not None and record.held and record.holder.heard_within(ALIVE_S):
            return None if record.holder.is_known_dead else record.holder
    return None
