"""The lock of a run in an object store: one driver at a time works on it, and says who it is.

    URL/.lock    {"session": ..., "held": true, and what a lock on a disk says}

A store has no locks that end with their process. So the holder renews its record, and a holder
whose record stays the same for a minute, by the clock of the process that waits, is taken for dead.
A holder that was only cut off looks before it writes anything again (`confirm`), finds another
session in the record, and stops.
"""

from __future__ import annotations

import json
import math
import time
import uuid
from collections.abc import Collection
from contextlib import suppress
from dataclasses import asdict, dataclass
from typing import Any, Final

from leap_rl.storage.object_store import ChangedError, ObjectStore, StoreError
from leap_rl.storage.run_lock import ALIVE_S, Holder, LockedError, holder_of, this_process

NAME: Final = ".lock"

LOOK_EVERY_S: Final = 2.0

TRUSTED_S: Final = ALIVE_S / 3
"""Within this time after a renewal no other driver can have taken the run over."""

SETTLE_S: Final = 1.0
"""Of two drivers that write the lock at the same time, the last one has it."""


class DeposedError(StoreError):
    """Another driver has taken the run over."""


@dataclass(frozen=True, kw_only=True)
class LockRecord:
    """The content of a lock."""

    session: str
    """Drawn by each driver; that of the last one stays when it is gone."""
    held: bool
    holder: Holder


class StoreLock:
    """The lock of one run: `look`, then `take`, `renew` or `confirm`, and `release`.

    These raise a StoreError where the store cannot be reached, and `renew` and `confirm` its kind
    DeposedError where another driver has the lock by now.
    """

    def __init__(self, store: ObjectStore) -> None:
        self.session = uuid.uuid4().hex
        self._store = store
        self._started = time.time()
        self._tag: str | None = None
        """Of the record that `take` replaces."""
        self._renewed_s = -math.inf
        self._successor: Holder | None = None

    def read(self) -> LockRecord | None:
        """Return the record; none before the first driver, or where it is damaged."""
        try:
            record = json.loads(self._store.read(NAME) or b"")
            holder = holder_of(record)
            session, held = record["session"], record["held"]
        except (ValueError, KeyError, TypeError):
            return None
        if holder is None or not isinstance(session, str):
            return None
        return LockRecord(session=session, held=held is True, holder=holder)

    def living_holder(self) -> Holder | None:
        """Return the holder if it seems to be alive; none too where the store is away."""
        with suppress(OSError):
            record = self.read()
            if record is not None and record.held and record.holder.seems_alive:
                return record.holder
        return None

    def look(self, own: Collection[str] = ()) -> LockRecord | None:
        """Return the record, as soon as its holder is gone or has been silent for a minute.

        ``own`` are the sessions of drivers on this machine that have ended.

        Raises:
            LockedError: The holder is alive.
        """
        self._tag, before = self._store.tag(NAME), self.read()  # the record is no older
        if before is None or not before.held or before.session in own:
            return before
        if before.holder.is_known_dead:
            return before
        until_s = time.monotonic() + ALIVE_S
        self._store.say(
            f"{before.holder} works on it, or has died: waiting up to {ALIVE_S:.0f} s to see which"
        )
        while time.monotonic() < until_s:
            time.sleep(LOOK_EVERY_S)
            tag, now = self._store.tag(NAME), self.read()
            if now is None or now == before:
                continue
            if now.held:
                raise LockedError(now.holder)
            self._tag = tag
            return now
        return before

    def take(self) -> None:
        """Take the lock, as it was at the last `look`.

        Raises:
            LockedError: Another driver came at the same time.
        """
        with suppress(ChangedError):
            self._write(held=True, over=self._tag)
            time.sleep(SETTLE_S)
        now = self.read()
        if now is None or now.session != self.session:
            raise LockedError(None if now is None else now.holder)

    def check(self) -> None:
        """Raise a DeposedError if it is known that another driver has the lock; asks nobody."""
        if self._successor is not None:
            raise DeposedError(
                f"{self._store.url}: {self._successor} has taken the run over while this machine "
                "was cut off"
            )

    def renew(self) -> None:
        """Write that the holder is alive."""
        tag = self._tag_of_own()
        try:
            self._write(held=True, over=tag)
        except ChangedError:
            self._tag_of_own()

    def confirm(self) -> None:
        """See to it that what is written now is not written over another driver's run."""
        self.check()
        if _now_s() > self._renewed_s + TRUSTED_S:
            self.renew()

    def release(self) -> None:
        """Give the lock back; its record still says which driver was the last."""
        tag, now = self._store.tag(NAME), self.read()
        if now is not None and now.session == self.session:
            with suppress(ChangedError):
                self._write(held=False, over=tag)

    def _tag_of_own(self) -> str | None:
        """Return the tag of the record, which no other driver has written."""
        tag, now = self._store.tag(NAME), self.read()
        if now is not None and now.session != self.session:
            self._successor = now.holder
        self.check()
        return tag

    def _write(self, *, held: bool, over: str | None) -> None:
        holder = asdict(this_process(self._started))
        record: dict[str, Any] = {"session": self.session, "held": held, **holder}
        asked_s = _now_s()
        self._store.replace(NAME, json.dumps(record).encode(), over)
        self._renewed_s = asked_s  # not the time of the answer, which may come late


def _now_s() -> float:
    """Return monotonic seconds, those in which this machine was asleep included."""
    # macOS has no CLOCK_BOOTTIME; CLOCK_MONOTONIC counts them there, and time.monotonic does not.
    return time.clock_gettime(getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC))
