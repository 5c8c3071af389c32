"""Opens a run by its path or URL; runs in an object store have a working copy on this machine."""

from __future__ import annotations

import hashlib
import logging
import math
import os
import shlex
import threading
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from pathlib import Path
from typing import Final

from leap_rl.core.urls import check_address, is_url, local_path
from leap_rl.storage.locked_folder import LOCK, SERVER, RunFolderError
from leap_rl.storage.mirror import CONFIG, Mirror
from leap_rl.storage.object_store import ObjectStore, StoreError
from leap_rl.storage.run_folder import MIRRORED, RunFolder
from leap_rl.storage.run_lock import Holder, LockedError, beat, living_holder, locked
from leap_rl.storage.store_lock import DeposedError, LockRecord, StoreLock

PUSH_EVERY_S: Final = 2.0

LAST_PUSH_S: Final = 60.0
"""How long the end of a command retries the last uploads to a store that is out of reach."""

LOOK_EVERY_S: Final = 10.0
"""Least interval between two looks at a store for changes."""

REFRESH: Final = ".refresh"
"""Lock in the working copy, of the process that updates it."""

_log = logging.getLogger(__name__)


def open_run(given: str | Path) -> RunFolder:
    """Return the run at a path or URL; ValueError for other URLs, StoreError if out of reach."""
    text = str(given)
    if check_address(text) == "file":
        # No shell expands --run_dir=~/runs.
        return RunFolder(local_path(text) if is_url(text) else os.path.expanduser(text))
    return RemoteRunFolder(text)


def working_copy(url: str) -> Path:
    """Return the working copy of the run at a URL, below ~/.cache/leap_rl/runs."""
    caches = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    key = hashlib.sha256(url.encode()).hexdigest()[:12]
    return Path(caches, "leap_rl", "runs", key, url.split("?")[0].rsplit("/", 1)[-1])


class RemoteRunFolder(RunFolder):
    """A run in an object store, with a working copy on this machine.

    A driver holds two locks, on the working copy and in the store, and uploads changes meanwhile.
    Work that was not uploaded when a machine dies is computed again. Methods that access the store
    raise a StoreError if it cannot be reached.
    """

    def __init__(self, url: str) -> None:
        self._store = ObjectStore(url)
        super().__init__(working_copy(self._store.url))
        self.url = self._store.url
        self._fetched: set[int] = set()
        self._refreshed_s = -math.inf
        self._held: StoreLock | None = None
        self.refresh()

    def refresh(self, *, at_once: bool = False) -> None:
        if not at_once and time.monotonic() < self._refreshed_s + LOOK_EVERY_S:
            return
        self.path.mkdir(parents=True, exist_ok=True)
        with self._alone():
            if living_holder(self.path / LOCK) is None:
                self._catch_up(StoreLock(self._store).read())
        self._fetched.clear()
        self._refreshed_s = time.monotonic()

    def checkpoint(self, number: int) -> Path:
        path = self._checkpoint(number)
        if number not in self._fetched and path.is_dir():
            Mirror(self.path, self._store).fetch(f"checkpoints/{path.name}")
        self._fetched.add(number)
        return path

    def worker(self) -> Holder | None:
        return super().worker() or StoreLock(self._store).living_holder()

    def publish(self, below: str) -> None:
        """Upload files that were written without the lock, such as a report, and no others."""
        if living_holder(self.path / LOCK) is None:
            Mirror(self.path, self._store).push(everything=True, below=below)

    def check(self) -> None:
        super().check()
        if self._held is not None:
            self._held.check()

    @contextmanager
    def lock(self) -> Iterator[None]:
        """Hold the locks of the working copy and of the store, and upload changes meanwhile.

        A RunFolderError if another driver works on the run, a StoreError if the store cannot be
        reached or an upload is missing at the end.
        """
        with super().lock():
            lock = StoreLock(self._store)
            try:
                before = lock.look(own=Mirror(self.path, self._store).sessions)
                with self._alone():
                    mirror = Mirror(self.path, self._store)
                    if before is not None and before.session in mirror.sessions:
                        # Before `take`: a crash in between leaves this copy the newest.
                        mirror.keep_sessions(before.session, lock.session)
                    lock.take()
            except LockedError as error:
                raise RunFolderError(
                    f"{self._store.url}: {error} works on this run; wait for it, stop it, or "
                    "choose another URL"
                ) from None
            self._held = lock
            try:
                with self._alone():
                    self._catch_up(before)
                mirror = Mirror(self.path, self._store, lock)
                mirror.fence()
                mirror.keep_sessions(lock.session)
                with self._following(mirror, lock):
                    yield
            finally:
                self._held = None
                with suppress(OSError):  # else the next driver waits for the lock to expire
                    lock.release()

    def _alone(self) -> AbstractContextManager[object]:
        return locked(self.path / REFRESH, wait_s=math.inf)

    def _catch_up(self, last: LockRecord | None) -> None:
        mirror = Mirror(self.path, self._store)
        is_there = self._store.read(CONFIG) is not None
        is_own = last is not None and last.session in mirror.sessions
        if is_own and (is_there or not mirror.knows(CONFIG)):
            if is_there:
                mirror.bring_back()
            return  # it is the newest
        if is_there:
            mirror.pull()
        elif self.exists():
            self._put_aside_what_is_gone()

    def _put_aside_what_is_gone(self) -> None:
        aside = self.path.with_name(f"{self.path.name}.{time.time_ns()}")
        aside.mkdir()
        for name in os.listdir(self.path):
            if name not in (LOCK, SERVER, REFRESH):  # locks, which may be held
                os.rename(self.path / name, aside / name)
        (aside / MIRRORED).unlink(missing_ok=True)  # it is a local run from now on
        _log.warning(
            "leap-rl: %s: holds no run any more; what was here of one is in %s",
            *(self._store.url, aside),
        )

    @contextmanager
    def _following(self, mirror: Mirror, lock: StoreLock) -> Iterator[None]:
        """Upload changes and renew the lock in threads; upload the rest at the end."""
        ended = threading.Event()
        threads = [
            threading.Thread(target=self._follow, args=(mirror, ended), daemon=True),
            threading.Thread(target=beat, args=(lock.renew, ended), daemon=True),
        ]
        for thread in threads:
            thread.start()
        try:
            yield
        except BaseException:
            ended.set()
            try:  # the first exception is raised
                self._push_all(mirror, threads, within_s=0.0)
            except StoreError as error:  # what is left, and where
                _log.warning("%s", error)
            except OSError:
                pass
            raise
        ended.set()
        self._push_all(mirror, threads, within_s=LAST_PUSH_S)

    def _follow(self, mirror: Mirror, ended: threading.Event) -> None:
        is_away = False
        while not ended.wait(PUSH_EVERY_S):
            try:
                mirror.push()
            except DeposedError:
                return  # `check` raises it in the driver
            except OSError as error:
                if not is_away:
                    _log.warning("%s; the run continues, and is uploaded when it can be", error)
                is_away = True
            else:
                if is_away:
                    _log.warning("%s: has all of the run again", self._store.url)
                is_away = False

    def _push_all(
        self, mirror: Mirror, threads: list[threading.Thread], *, within_s: float
    ) -> None:
        for thread in threads:
            thread.join()
        until_s = time.monotonic() + within_s
        while True:
            self.check()
            try:
                mirror.push(everything=True)
                return
            except DeposedError:
                raise
            except OSError as error:
                if time.monotonic() > until_s:
                    url = shlex.quote(self._store.url)
                    raise StoreError(
                        f"{error}; nothing is lost: it is in {self.path}, and `leap-rl resume "
                        f"{url}` on this machine uploads it"
                    ) from None
            time.sleep(PUSH_EVERY_S)
