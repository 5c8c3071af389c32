"""Synchronizes an object store and the working copy of a run's folder.

A store cannot rename, so the order of writes keeps checkpoints whole: first a checkpoint's files,
then its state.json with their checksums, then `latest`, which names it. A new run's config.yaml is
written last. So the store holds a resumable run at any moment. Files of the working copy appear by
renaming, or grow.
"""

from __future__ import annotations

import json
import logging
import os
import stat
import time
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path, PurePosixPath
from typing import Final, NamedTuple

from leap_rl.core import plain_json
from leap_rl.core.regular_file import LARGEST_TEXT, read_regular
from leap_rl.storage.durable_files import write_atomically
from leap_rl.storage.object_store import ChangedError, ObjectStore, StoreError, Version, is_plain
from leap_rl.storage.run_folder import BEST, LATEST, LONGEST_NUMBER, MIRRORED, STATE
from leap_rl.storage.store_lock import StoreLock

GROWING: Final = ("metrics.jsonl", "live.json", "tensorboard/", "wandb/")
"""Files that change all the time; they are for display, and no resume reads them."""

GROWING_EVERY_S: Final = 20.0
"""Least interval, plus a second for each megabyte: each time the whole file is written."""

PASSING: Final = ("slots/", "carried_over/", "live.json")
"""Files that a run removes; no others are ever removed from the store."""

PARALLEL_DOWNLOADS: Final = 8

CONFIG: Final = "config.yaml"
POINTERS: Final = tuple(f"checkpoints/{name}" for name in (LATEST, BEST))

_log = logging.getLogger(__name__)


class Stamp(NamedTuple):
    """Changes with a file's content."""

    size: int
    changed_ns: int
    inode: int


class Mirror:
    """The working copy and the store of one run.

    A driver passes the lock that it holds; other commands push and pull without one. All methods
    raise a StoreError if the store cannot be reached.
    """

    def __init__(self, folder: Path, store: ObjectStore, lock: StoreLock | None = None) -> None:
        self._folder = folder
        self._store = store
        self._lock = lock
        self._tags: dict[str, str | None] = {}
        """Of the config and the pointers, as this driver last read or wrote them."""
        self._pushed_s: dict[str, float] = {}
        """When a growing file was last written to the store."""
        # By name, what both sides had when they were last equal; no version if it is unknown.
        self.sessions, self._alike = self._read_records()

    def push(self, *, everything: bool = False, below: str = "") -> int:
        """Update the store, and return the number of files that were written or removed.

        Another call continues after an error. ``everything`` includes growing files that are not
        due yet; ``below`` limits it to files whose names begin with that. DeposedError: another
        driver has taken the run over. OSError: a file cannot be read.
        """
        # Pointers are read before the folder is listed, so that what they name is in the list.
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
            if content is not None:  # else removed, or created after the listing: the next push
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
        """Replace config and pointers only conditionally from now on; the lock must be held.

        A store that compares tags then refuses late writes of the lock's previous holder.
        """
        self._tags = {name: self._store.tag(name) for name in (CONFIG, *POINTERS)}

    def _write(self, name: str, content: bytes) -> None:
        if self._lock is not None:
            self._lock.confirm()
        if name not in self._tags or self._lock is None:
            self._store.write(name, content)
            return
        if not self._store.compares:
            self._lock.renew()  # another driver can only get in during one request
        try:
            tag = self._store.replace(name, content, self._tags[name])
        except ChangedError:
            self._lock.renew()  # if it succeeds: a late write of the previous driver or of this one
            try:
                tag = self._store.replace(name, content, self._store.tag(name))
            except ChangedError:
                raise StoreError(f"{self._store.url}: {name} is written by another") from None
        self._tags[name] = tag

    def _remove(self, stamps: Mapping[str, Stamp], latest: int) -> int:
        """Remove from the store what the run has removed, unless the store's `latest` needs it."""
        needed = (f"slots/{latest:06d}/", f"carried_over/{latest - 1:06d}/")
        gone = [
            name
            for name in self._alike
            if name not in stamps
            and name.startswith(PASSING)
            # A snapshot goes once its result exists; results stay until the next checkpoint.
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

    def pull(self) -> None:
        """Make the working copy equal to the store, without parameters that no pointer names.

        `fetch` gets those on demand.
        """
        # Pointers are read before the objects are listed, so that what they name is in the list.
        pointers = {name: self._store.read(name) for name in POINTERS}
        there = self._store.versions()
        self._forget_all_but(there)
        led_to = tuple(f"checkpoints/{_number(one):06d}/" for one in pointers.values() if one)
        missing = [name for name in there if name not in self._alike and name not in POINTERS]
        wanted = [name for name in missing if not _is_big(name) or name.startswith(led_to)]
        size = sum(there[name].size for name in wanted)
        if size > 50e6 or len(wanted) > 200:
            files = f"{len(wanted)} files, {size / 1e6:,.0f} MB"
            _log.warning("leap-rl: %s: fetching %s", self._store.url, files)
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
        versions = self._store.versions(folder).items()
        missing = {name: version for name, version in versions if not self._stamp(name)}
        if missing:
            self._download(missing)
            self._write_records()

    def bring_back(self) -> None:
        """Download what both sides had and is gone here, such as by a cleaner of old files.

        A run itself removes nothing but what passes, and parameters, which are fetched on demand.
        """
        gone = [
            name
            for name in self._alike
            if not (name.startswith(PASSING) or _is_big(name)) and self._stamp(name) is None
        ]
        if gone:
            there = self._store.versions()
            self._download({name: there[name] for name in gone if name in there})
            self._write_records()

    def _forget_all_but(self, there: Mapping[str, Version]) -> None:
        """Remove from the working copy what the store lacks or has another version of."""
        for name, stamp in self._stamps().items():
            local, remote = self._alike.get(name, (None, None))
            same = local == stamp and name in there and remote == there[name]
            if not same and name not in POINTERS:
                (self._folder / name).unlink(missing_ok=True)
        self._alike = {name: both for name, both in self._alike.items() if self._stamp(name)}

    def _download(self, versions: Mapping[str, Version]) -> None:
        def bring(name: str) -> None:
            content = self._store.read(name)
            if content is not None:
                write_atomically(self._folder / name, content, root=self._folder)
                version = versions[name] if versions[name].changed_ns else None
                self._alike[name] = (_stamp(self._folder / name), version)

        with ThreadPoolExecutor(PARALLEL_DOWNLOADS) as pool:
            list(pool.map(bring, versions))

    def knows(self, name: str) -> bool:
        return name in self._alike

    def keep_sessions(self, *sessions: str) -> None:
        """Record whose copy this is: the newest as long as the store's lock names one of them."""
        self.sessions = sessions
        self._write_records()

    def _stamps(self) -> dict[str, Stamp]:
        found = {}
        for parent, folders, files in os.walk(self._folder):
            folders[:] = filter(is_plain, folders)
            for path in (Path(parent, name) for name in files if is_plain(name)):
                with suppress(FileNotFoundError):  # removed meanwhile
                    if stat.S_ISREG(path.lstat().st_mode):
                        found[path.relative_to(self._folder).as_posix()] = _stamp(path)
        return found

    def _stamp(self, name: str) -> Stamp | None:
        with suppress(FileNotFoundError):
            return _stamp(self._folder / name)
        return None

    def _content(self, name: str) -> bytes | None:
        with suppress(FileNotFoundError):
            return (self._folder / name).read_bytes()
        return None

    def _read_records(self) -> tuple[tuple[str, ...], dict[str, tuple[Stamp, Version | None]]]:
        try:
            records = plain_json.load(read_regular(self._folder / MIRRORED, LARGEST_TEXT))
            alike = {
                str(name): (Stamp(*stamp), None if version is None else Version(*version))
                for name, (stamp, version) in records["files"].items()
            }
            return tuple(map(str, records["sessions"])), alike
        except (OSError, ValueError, KeyError, TypeError, AttributeError):
            return (), {}  # every file is transferred again

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
    """Return the file's place in the order of writes: pointers follow what they name."""
    if name == CONFIG:
        return 3
    if name in POINTERS:
        return 2
    return 1 if PurePosixPath(name).name == STATE else 0


def _is_big(name: str) -> bool:
    return name.startswith("checkpoints/") and name.endswith(".safetensors")
