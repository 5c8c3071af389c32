"""Finds a run's folder by what a user calls it: a path, or the URL of an object store."""

from __future__ import annotations

import hashlib
import logging
import os
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

from leap_rl.storage.locked_folder import LOCK, SERVER, RunFolderError
from leap_rl.storage.mirror import CONFIG, Mirror
from leap_rl.storage.object_store import ObjectStore, StoreError
from leap_rl.storage.run_folder import MIRRORED, RunFolder
from leap_rl.storage.run_lock import BEAT_EVERY_S, Holder, LockedError, living_holder, locked
from leap_rl.storage.store_lock import DeposedError, Record, StoreLock, living
from leap_rl.storage.urls import is_url, redacted, refuse_password

PUSH_EVERY_S: Final = 2.0

LAST_PUSH_S: Final = 60.0
"""How long the end of a command tries to bring the last files to a store that is away."""

LOOK_EVERY_S: Final = 10.0
"""At most this often is a store asked for what has changed."""

REFRESH: Final = ".refresh"
"""In the working copy: the lock of who brings it up to date."""

_log = logging.getLogger(__name__)


def run_folder(given: str | Path) -> RunFolder:
    """Return the folder of a run that is named by a path or a URL.

    Raises:
        ValueError: It is a URL of no kind that can hold a run.
        StoreError: The object store cannot be reached, or refuses.
    """
    text = str(given)
    if not is_url(text):
        return RunFolder(text)
    refuse_password(text)
    if text.startswith("file://"):
        where = urlsplit(text)
        if where.netloc not in ("", "localhost") or not where.path:
            raise ValueError(
                f"{redacted(text)}: must name a folder of this machine, as file:///srv/runs/mine"
            )
        return RunFolder(where.path)
    return StoredRunFolder(text)


def working_copy(url: str) -> Path:
    """Return where on this machine the run at a URL is worked on: below ~/.cache/leap_rl/runs."""
    caches = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    key = hashlib.sha256(url.encode()).hexdigest()[:12]
    return Path(caches, "leap_rl", "runs", key, url.split("?")[0].rsplit("/", 1)[-1])


class StoredRunFolder(RunFolder):
    """A run in an object store, with a working copy on this machine.

    Whoever works on the run holds its lock, here and in the store; as long as it is held the store
    follows the working copy. What the store lacks when a machine dies is computed again.

    Raises:
        StoreError: The store cannot be reached.
    """

    def __init__(self, url: str) -> None:
        self._store = ObjectStore(url)
        super().__init__(working_copy(self._store.url))
        self.url = self._store.url
        self._fetched: set[int] = set()
        self._refreshed_s = 0.0
        self._failure: str | None = None
        self.refresh()

    def refresh(self) -> None:
        """Make the working copy what the store has, unless it is itself the newer one."""
        if time.monotonic() < self._refreshed_s + LOOK_EVERY_S and self._refreshed_s:
            return
        self.path.mkdir(parents=True, exist_ok=True)
        with _one_at_a_time(self.path / REFRESH):
            if living_holder(self.path / LOCK) is None:
                self._catch_up(self._lock().read())
        self._fetched.clear()
        self._refreshed_s = time.monotonic()

    def checkpoint(self, number: int) -> Path:
        """Return the folder of checkpoint ``number``, with its files."""
        path = self._checkpoint(number)
        if number not in self._fetched and path.is_dir():
            Mirror(self.path, self._store).fetch(f"checkpoints/{path.name}")
        self._fetched.add(number)
        return path

    def worker(self) -> Holder | None:
        """Return the process that works on the run, here or elsewhere."""
        return super().worker() or living(self._lock())

    def publish(self, below: str) -> None:
        """Bring to the store what was written without the lock, such as a report.

        Args:
            below: What its names begin with.

        Raises:
            StoreError: The store cannot be reached.
        """
        if living_holder(self.path / LOCK) is None:
            # Nothing else: another driver may go on with the run meanwhile.
            Mirror(self.path, self._store).push(everything=True, below=below)

    def check(self) -> None:
        """Raise if the run is to go on elsewhere.

        Raises:
            StoreError: Another driver has taken it over.
            OSError: The working copy's lock was removed or replaced.
        """
        super().check()
        if self._failure is not None:
            raise StoreError(self._failure)

    @contextmanager
    def lock(self) -> Iterator[None]:
        """Keep others from working on the run, and let the store follow the working copy.

        Raises:
            RunFolderError: Somebody else does.
            StoreError: The store cannot be reached; or it lacks something at the end.
        """
        with super().lock():
            lock = self._lock()
            try:
                before = lock.acquire(
                    own=Mirror(self.path, self._store).sessions,
                    announce=lambda last: self._announce(last, lock.session),
                )
            except LockedError as error:
                raise RunFolderError(
                    f"{self._store.url}: {error} works on this run; wait for it, stop it, or "
                    "choose another URL"
                ) from None
            try:
                with _one_at_a_time(self.path / REFRESH):
                    self._catch_up(before)
                confirm, look = self._asking(lock.confirm), self._asking(lock.renew)
                mirror = Mirror(self.path, self._store, confirm=confirm, look=look)
                mirror.fence()
                mirror.keep_sessions(lock.session)
                with self._following(mirror, lock):
                    yield
            finally:
                with suppress(OSError):  # or it is taken for that of a process that has died
                    lock.release()

    def _lock(self) -> StoreLock:
        return StoreLock(self._store, say=_say)

    def _announce(self, last: Record | None, session: str) -> None:
        """Write down, before the store says so, that the last session may be one of this machine.

        Or a death right after would make the working copy one that others have gone beyond, and
        what the store lacks would be taken for old.
        """
        with _one_at_a_time(self.path / REFRESH):
            mirror = Mirror(self.path, self._store)
            if last is not None and last.session in mirror.sessions:
                mirror.keep_sessions(last.session, session)

    def _catch_up(self, last: Record | None) -> None:
        """Bring what others have done since this machine worked on the run, if anybody has.

        Args:
            last: Who worked on it last; none where the lock does not tell, as that of a run which
                was copied there: then the store is looked at.
        """
        mirror = Mirror(self.path, self._store)
        is_there = self._store.read(CONFIG) is not None
        is_own = last is not None and last.session in mirror.sessions
        if is_own and (is_there or not mirror.knows(CONFIG)):
            return  # what the store lacks of it is here
        if is_there:
            mirror.pull(_say)
        elif self.exists():
            self._put_aside_what_is_gone()

    def _put_aside_what_is_gone(self) -> None:
        """Keep a working copy whose run is gone from the store, and begin another."""
        aside = self.path.with_name(f"{self.path.name}.{time.time_ns()}")
        aside.mkdir()
        for name in os.listdir(self.path):
            if name not in (LOCK, SERVER, REFRESH):  # which may be held
                os.rename(self.path / name, aside / name)
        (aside / MIRRORED).unlink(missing_ok=True)  # a run of its own from now on
        _say(f"{self._store.url}: holds no run any more; what was here of one is in {aside}")

    @contextmanager
    def _following(self, mirror: Mirror, lock: StoreLock) -> Iterator[None]:
        ended = threading.Event()
        follow = threading.Thread(
            target=_repeat, args=(self._push(mirror), PUSH_EVERY_S, ended), daemon=True
        )
        heartbeat = threading.Thread(
            target=_repeat, args=(self._beat(lock), BEAT_EVERY_S, ended), daemon=True
        )
        follow.start()
        heartbeat.start()
        try:
            yield
        except BaseException:
            with suppress(OSError):  # what it fails of is to be told, and not this
                self._end(mirror, ended, (follow, heartbeat), within_s=0.0)
            raise
        self._end(mirror, ended, (follow, heartbeat), within_s=LAST_PUSH_S)

    def _push(self, mirror: Mirror) -> Callable[[], None]:
        away = False

        def push() -> None:
            nonlocal away
            if self._failure is not None:
                return
            try:
                mirror.push()
            except OSError as error:
                if not away and self._failure is None:
                    _log.warning("%s; the run goes on, and is uploaded when it can be", error)
                away = True
            else:
                if away:
                    _log.warning("%s: has all of the run again", self._store.url)
                away = False

        return push

    def _beat(self, lock: StoreLock) -> Callable[[], None]:
        renew = self._asking(lock.renew)

        def heartbeat() -> None:
            with suppress(OSError):  # the other thread tells of a store that is away
                renew()

        return heartbeat

    def _asking(self, ask: Callable[[], None]) -> Callable[[], None]:
        """Return what asks the lock, and keeps for :meth:`check` that another driver has it."""

        def asking() -> None:
            try:
                ask()
            except DeposedError as error:
                self._failure = (
                    f"{self._store.url}: {error} has taken the run over while this machine was "
                    "cut off"
                )
                raise StoreError(self._failure) from None

        return asking

    def _end(
        self,
        mirror: Mirror,
        ended: threading.Event,
        threads: Iterable[threading.Thread],
        *,
        within_s: float,
    ) -> None:
        """End the threads, then bring what is left."""
        ended.set()
        for thread in threads:
            thread.join()
        self.check()
        until_s = time.monotonic() + within_s
        while True:
            try:
                mirror.push(everything=True)
                return
            except OSError as error:
                self.check()
                if time.monotonic() > until_s:
                    raise StoreError(
                        f"{error}; nothing is lost: it is in {self.path}, and `leap-rl resume "
                        f"{self._store.url}` on this machine uploads it"
                    ) from None
            time.sleep(PUSH_EVERY_S)


def _repeat(work: Callable[[], None], every_s: float, ended: threading.Event) -> None:
    while not ended.wait(every_s):
        work()


@contextmanager
def _one_at_a_time(path: Path) -> Iterator[None]:
    """Wait for whoever else brings a working copy up to date."""
    with ExitStack() as held:
        while True:
            try:
                held.enter_context(locked(path))
                break
            except LockedError:
                time.sleep(0.1)
        yield


def _say(line: str) -> None:
    print(f"leap-rl: {line}", file=sys.stderr, flush=True)
