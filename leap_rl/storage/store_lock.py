"""The lock of a run in an object store, which names the driver that works on the run.

    URL/.lock    {"session": ..., "held": true, and what a lock on a disk says}

A store has no locks that end with their process. So the holder renews its record, and counts as
dead if the record stays the same for a minute by the waiting process's clock. A holder that was
only cut off reads the record before it writes again (`confirm`), finds another session, and stops.
"""

from __future__ import annotations

import json
import logging
import math
import time
import uuid
from collections.abc import Collection
from contextlib import suppress
from dataclasses import asdict, dataclass
from typing import Any, Final

from leap_rl.core import plain_json
from leap_rl.storage.object_store import ChangedError, ObjectStore, StoreError
from leap_rl.storage.run_lock import ALIVE_S, Holder, LockedError, holder_of, this_process

NAME: Final = ".lock"

LOOK_EVERY_S: Final = 2.0

TRUSTED_S: Final = ALIVE_S / 3
"""No other driver can take the run over within this time after a renewal."""

SETTLE_S: Final = 1.0
"""Wait before the record is read back: of two simultaneous writers the last one has the lock."""


_log = logging.getLogger(__name__)


class DeposedError(StoreError):
    """Another driver has taken the run over."""


@dataclass(frozen=True, kw_only=True)
class LockRecord:
    """The content of a lock."""

    session: str
    """Random ID of the last driver, which stays after the lock's release."""
    held: bool
    holder: Holder


class StoreLock:
    """The lock of one run: `look`, then `take`, `renew` or `confirm`, and `release`.

    All raise a StoreError if the store cannot be reached; `renew` and `confirm` raise a
    DeposedError if another driver has the lock.
    """

    def __init__(self, store: ObjectStore) -> None:
        self.session = uuid.uuid4().hex
        self._store = store
        self._started = time.time()
        self._tag: str | None = None
        """Tag of the record that `take` replaces."""
        self._renewed_s = -math.inf
        self._successor: Holder | None = None

    def read(self) -> LockRecord | None:
        """Return the record; None before the first driver, or if it is damaged."""
        try:
            record = plain_json.load(self._store.read(NAME) or b"")
            holder = holder_of(record)
            session, held = record["session"], record["held"]
        except (ValueError, KeyError, TypeError):
            return None
        if holder is None or not isinstance(session, str):
            return None
        return LockRecord(session=session, held=held is True, holder=holder)

    def living_holder(self) -> Holder | None:
        """Return the holder if it seems alive; None too if the store cannot be reached."""
        with suppress(OSError):
            record = self.read()
            if record is not None and record.held and record.holder.seems_alive:
                return record.holder
        return None

    def look(self, own: Collection[str] = ()) -> LockRecord | None:
        """Return the record once its holder is gone or has not renewed it for a minute.

        ``own`` are the sessions of ended drivers on this machine. A living holder is a LockedError.
        """
        self._tag, before = self._store.tag(NAME), self.read()  # in this order: the tag is older
        if before is None or not before.held or before.session in own:
            return before
        if before.holder.is_known_dead:
            return before
        until_s = time.monotonic() + ALIVE_S
        _log.warning(
            "leap-rl: %s: %s works on it, or has died: waiting up to %.0f s to see which",
            *(self._store.url, before.holder, ALIVE_S),
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
        """Take the lock as it was at `look`; a LockedError if another driver was faster."""
        with suppress(ChangedError):
            self._write(held=True, over=self._tag)
            time.sleep(SETTLE_S)
        now = self.read()
        if now is None or now.session != self.session:
            raise LockedError(None if now is None else now.holder)

    def check(self) -> None:
        """Raise a DeposedError if another driver is known to have the lock; asks no store."""
        if self._successor is not None:
            raise DeposedError(
                f"{self._store.url}: {self._successor} has taken the run over while this machine "
                "was cut off"
            )

    def renew(self) -> None:
        tag = self._tag_of_own()
        try:
            self._write(held=True, over=tag)
        except ChangedError:
            self._tag_of_own()

    def confirm(self) -> None:
        """Renew the lock if the last renewal is too old to rely on; call it before each write."""
        self.check()
        if _now_s() > self._renewed_s + TRUSTED_S:
            self.renew()

    def release(self) -> None:
        """Give the lock back; its record still names the last driver."""
        tag, now = self._store.tag(NAME), self.read()
        if now is not None and now.session == self.session:
            with suppress(ChangedError):
                self._write(held=False, over=tag)

    def _tag_of_own(self) -> str | None:
        """Return the tag of the own record; a DeposedError if it is another driver's."""
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
        self._renewed_s = asked_s  # not the time of the answer, which may be late


def _now_s() -> float:
    """Return monotonic seconds that include suspended time."""
    # macOS has no CLOCK_BOOTTIME; its CLOCK_MONOTONIC includes it, and time.monotonic does not.
    return time.clock_gettime(getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC))
