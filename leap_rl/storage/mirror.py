"""Keeps an object store and the working copy of a run's folder alike.

A store cannot rename, so the order of the writes makes a checkpoint whole: its files, then its
state.json with their sums, then `latest`, which names it. A new run's config.yaml is its last file.
So the store holds a run that can be resumed at any moment. Files of the working copy appear whole,
by renaming, or grow.
"""

from __future__ import annotations

import json
import os
import stat
import time
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path, PurePosixPath
from typing import Final, NamedTuple

from leap_rl.storage.durable_files import write_atomically
from leap_rl.storage.object_store import ChangedError, ObjectStore, StoreError, Version, is_plain
from leap_rl.storage.run_folder import BEST, LATEST, LONGEST_NUMBER, MIRRORED, STATE
from leap_rl.storage.store_lock import StoreLock

GROWING: Final = ("metrics.jsonl", "live.json", "tensorboard/", "wandb/")
"""Files that change all the time; they are for display, and no resumed run reads them."""

GROWING_EVERY_S: Final = 20.0
"""At most, and a second later for each megabyte, as it is written whole each time."""

PASSING: Final = ("slots/", "carried_over/", "live.json")
"""Files that a run removes; no other is ever removed from the store."""

DOWNLOADS: Final = 8
"""At a time."""

CONFIG: Final = "config.yaml"
POINTERS: Final = tuple(f"checkpoints/{name}" for name in (LATEST, BEST))


class Stamp(NamedTuple):
    """What tells one content of a file from the next."""

    size: int
    changed_ns: int
    inode: int


class Mirror:
    """The two sides of one run: the working copy and the store.

    A driver gives the lock that it holds; other commands push and pull without one. All raise a
    StoreError where the store cannot be reached.
    """

    def __init__(self, folder: Path, store: ObjectStore, lock: StoreLock | None = None) -> None:
        self._folder = folder
        self._store = store
        self._lock = lock
        self._tags: dict[str, str | None] = {}
        """Of the config and the pointers, as this driver has read or written them last."""
        self._pushed_s: dict[str, float] = {}
        """When a growing file was last written to the store."""
        # What both sides had when they were made alike, by name; no version if none is known.
        self.sessions, self._alike = self._read_records()

    # -- to the store -------------------------------------------------------------------------

    def push(self, *, everything: bool = False, below: str = "") -> int:
        """Bring the store up to date, and return how many files that took.

        After an error another call continues.

        Args:
            everything: Also growing files that were written a moment ago.
            below: Only files whose name begins with this.

        Raises:
            DeposedError: Another driver has taken the run over.
            OSError: A file cannot be read.
        """
        # Read first: the files that they lead to exist when the folder is listed.
        pointers = {name: (self._stamp(name), self._content(name)) for name in POINTERS}
        stamps = self._stamps()
        stamps |= {name: stamp for name, (stamp, _) in pointers.items() if stamp is not None}
        changed = [
            name
            for name, stamp in stamps.items()
            if name.startswith(below)
            and self._alike.get(name, [None])[0] != stamp
            and (everything or not self._waits(name, stamp.size))
        ]
        done = 0
        for name in sorted(changed, key=_rank):
            content = pointers[name][1] if name in pointers else self._content(name)
            if content is None:  # removed meanwhile, or made since: another time
                continue
            self._write(name, content)
            self._pushed_s[name] = time.monotonic()
            self._alike[name] = (stamps[name], None)
            done += 1
        if not below:
            done += self._remove(stamps, _number(pointers[POINTERS[0]][1]))
        if done:
            self._write_records()
        return done

    def fence(self) -> None:
        """From now on replace config and pointers only as this driver knows them; it has the lock.

        A store that compares then refuses a late write of the driver that had the lock before.
        """
        self._tags = {name: self._store.tag(name) for name in (CONFIG, *POINTERS)}

    def _write(self, name: str, content: bytes) -> None:
        if self._lock is not None:
            self._lock.confirm()
        if name not in self._tags or self._lock is None:
            self._store.write(name, content)
            return
        if not self._store.compares:
            self._lock.renew()  # which leaves the time of one request
        try:
            tag = self._store.replace(name, content, self._tags[name])
        except ChangedError:
            self._lock.renew()  # or it was a late write of the driver before, or an own one
            try:
                tag = self._store.replace(name, content, self._store.tag(name))
            except ChangedError:
                raise StoreError(f"{self._store.url}: {name} is written by another") from None
        self._tags[name] = tag

    def _remove(self, stamps: Mapping[str, Stamp], latest: int) -> int:
        """Remove from the store what the run has removed, unless `latest` there needs it."""
        needed = (f"slots/{latest:06d}/", f"carried_over/{latest - 1:06d}/")
        gone = [
            name
            for name in self._alike
            if name not in stamps
            and name.startswith(PASSING)
            # A result takes the place of a snapshot; nothing takes that of a result.
            and not (name.startswith(needed) and name.endswith(".safetensors"))
        ]
        for name in gone:
            if self._lock is not None:
                self._lock.confirm()
            self._store.remove(name)
            del self._alike[name]
        return len(gone)

    def _waits(self, name: str, size: int) -> bool:
        last_s = self._pushed_s.get(name)
        if last_s is None or not name.startswith(GROWING):
            return False
        return time.monotonic() < last_s + GROWING_EVERY_S + size / 1e6

    # -- from the store -----------------------------------------------------------------------

    def pull(self) -> None:
        """Make the working copy like the store; parameters that no pointer leads to stay there.

        `fetch` brings those when they are asked for.

        Raises:
            OSError: The working copy cannot be written.
        """
        # Read first: the files that they lead to exist when the objects are listed.
        pointers = {name: self._store.read(name) for name in POINTERS}
        there = self._store.versions()
        self._forget_all_but(there)
        led_to = tuple(f"checkpoints/{_number(one):06d}/" for one in pointers.values() if one)
        missing = [name for name in there if name not in self._alike and name not in POINTERS]
        wanted = [name for name in missing if not _is_big(name) or name.startswith(led_to)]
        size = sum(there[name].size for name in wanted)
        if size > 50e6 or len(wanted) > 200:
            self._store.say(f"fetching {len(wanted)} files, {size / 1e6:,.0f} MB")
        self._download({name: there[name] for name in wanted})
        for name, content in pointers.items():
            path = self._folder / name
            if content is None:
                path.unlink(missing_ok=True)
            else:
                write_atomically(path, content, root=self._folder)
                self._alike[name] = (_stamp(path), None)
        self._write_records()

    def fetch(self, folder: str) -> None:
        """Bring the objects of one folder that the working copy lacks."""
        missing = {
            name: version
            for name, version in self._store.versions(folder).items()
            if not (self._folder / name).exists()
        }
        if missing:
            self._download(missing)
            self._write_records()

    def _forget_all_but(self, there: Mapping[str, Version]) -> None:
        """Remove from the working copy what the store has no more, or has another version of."""
        for name, stamp in self._stamps().items():
            local, remote = self._alike.get(name, (None, None))
            same = local == stamp and name in there and remote == there[name]
            if not same and name not in POINTERS:
                (self._folder / name).unlink(missing_ok=True)
        self._alike = {
            name: both for name, both in self._alike.items() if (self._folder / name).exists()
        }

    def _download(self, versions: Mapping[str, Version]) -> None:
        def bring(name: str) -> None:
            content = self._store.read(name)
            if content is not None:
                write_atomically(self._folder / name, content, root=self._folder)
                version = versions[name] if versions[name].changed_ns else None
                self._alike[name] = (_stamp(self._folder / name), version)

        with ThreadPoolExecutor(DOWNLOADS) as pool:
            list(pool.map(bring, versions))

    def knows(self, name: str) -> bool:
        """Whether the store had a file of this name when it was last read or written."""
        return name in self._alike

    # -- the working copy ---------------------------------------------------------------------

    def keep_sessions(self, *sessions: str) -> None:
        """Record whose working copy this is.

        As long as the store's lock names one of these sessions, no other machine has worked on the
        run since, and this copy is the newest.
        """
        self.sessions = sessions
        self._write_records()

    def _stamps(self) -> dict[str, Stamp]:
        """Return the files, each with what changes when its content does."""
        found = {}
        for parent, folders, files in os.walk(self._folder):
            folders[:] = filter(is_plain, folders)
            for path in (Path(parent, name) for name in files if is_plain(name)):
                with suppress(FileNotFoundError):  # removed meanwhile
                    if stat.S_ISREG(path.lstat().st_mode):
                        found[path.relative_to(self._folder).as_posix()] = _stamp(path)
        return found

    def _stamp(self, name: str) -> Stamp | None:
        try:
            return _stamp(self._folder / name)
        except FileNotFoundError:
            return None

    def _content(self, name: str) -> bytes | None:
        try:
            return (self._folder / name).read_bytes()
        except FileNotFoundError:
            return None

    def _read_records(self) -> tuple[tuple[str, ...], dict[str, tuple[Stamp, Version | None]]]:
        try:
            records = json.loads((self._folder / MIRRORED).read_bytes())
            alike = {
                str(name): (Stamp(*stamp), None if version is None else Version(*version))
                for name, (stamp, version) in records["files"].items()
            }
            return tuple(map(str, records["sessions"])), alike
        except (OSError, ValueError, KeyError, TypeError, AttributeError):
            return (), {}  # as if nothing were alike: all of it is written or read again

    def _write_records(self) -> None:
        records = {"sessions": self.sessions, "files": self._alike}
        write_atomically(self._folder / MIRRORED, json.dumps(records).encode())


def _stamp(path: Path) -> Stamp:
    status = path.stat()
    return Stamp(status.st_size, status.st_mtime_ns, status.st_ino)


def _number(pointer: bytes | None) -> int:
    text = (pointer or b"").strip()
    return int(text) if text.isdigit() and len(text) <= LONGEST_NUMBER else 0


def _rank(name: str) -> int:
    """Return when a file's turn is: later ones lead to earlier ones."""
    if name == CONFIG:
        return 3
    if name in POINTERS:
        return 2
    return 1 if PurePosixPath(name).name == STATE else 0


def _is_big(name: str) -> bool:
    """Whether it is a checkpoint's file of parameters."""
    return name.startswith("checkpoints/") and name.endswith(".safetensors")
