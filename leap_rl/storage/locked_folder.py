"""Writes to a run's folder by one driver and one server, while they hold their locks.

Symbolic links, pipes and devices are refused, except wandb's own links: a link would redirect a
write out of the folder.
"""

from __future__ import annotations

import os
import weakref
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from leap_rl.storage.durable_files import make_folder, remove, remove_leftovers, write_atomically
from leap_rl.storage.run_lock import Holder, LockedError, living_holder, locked
from leap_rl.storage.safe_open import find_irregular, opened_folder

LOCK = ".lock"
SERVER = ".server"
IN_PLACE = (LOCK, SERVER, "metrics.jsonl")
"""Files that are written in place. All others are replaced, which leaves their hard links alone."""

SERVER_WAIT_S = 30.0

_STOPS = " while a run went on there; another command may work there now, so this one stops"


class RunFolderError(ValueError):
    """Something in a run's folder is missing or damaged."""


class LockedFolder:
    """One run's folder; refuses writes after its lock files were removed or replaced."""

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path).absolute()
        self.url: str | None = None
        """Of the object store that holds the run; none for a run at `path`."""
        self._locks: dict[str, os.stat_result] = {}
        """The lock files, by name, as they were when they were locked."""

    @property
    def place(self) -> str:
        return self.url or str(self.path)

    def refresh(self, *, at_once: bool = False) -> None:
        """Fetch what other machines have written to a remote run, unless it was just looked for."""

    def publish(self, below: str) -> None:
        """Upload a remote run's files whose names begin with ``below``."""

    def check(self) -> None:
        """Raise an OSError if a lock file was removed or replaced: others may work there."""
        for name, held in self._locks.items():
            path = self.path / name
            try:
                there = os.stat(path, follow_symlinks=False)
            except FileNotFoundError:
                raise OSError(f"{path}: was removed{_STOPS}") from None
            if not os.path.samestat(held, there):
                raise OSError(f"{path}: was replaced{_STOPS}")

    def rely_on_locks(self) -> None:
        """Check from now on the lock files that exist; for a server, whose driver holds one."""
        for name in (LOCK, SERVER):
            with suppress(FileNotFoundError):
                descriptor = os.open(self.path / name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
                # While the descriptor is open, no other file gets this inode number.
                weakref.finalize(self, os.close, descriptor)
                self._locks[name] = os.fstat(descriptor)

    def write(self, path: Path, data: bytes) -> None:
        self.check()
        write_atomically(path, data, root=self.path)

    def remove(self, path: Path, *, ignore_errors: bool = False) -> None:
        """Remove a file or folder in the folder, through no link.

        With ``ignore_errors`` it may stay, as an open file on a network file system does.
        """
        self.check()
        with suppress(*([OSError] if ignore_errors else [])):
            remove(path, root=self.path)

    def set_aside(self, path: Path) -> Path:
        """Rename a damaged file to NAME.damaged, through no link; returns the new path."""
        aside = path.with_name(f"{path.name}.damaged")
        with opened_folder(path.parent, root=self.path) as parent:
            os.replace(path.name, aside.name, src_dir_fd=parent, dst_dir_fd=parent)
        return aside

    @contextmanager
    def lock(self) -> Iterator[None]:
        """Hold the driver's lock; a RunFolderError if another has it, or for links and pipes."""
        make_folder(self.path)
        self.refuse_links()
        for path in (self.path / name for name in IN_PLACE):
            if path.exists() and path.stat().st_nlink > 1:
                raise RunFolderError(
                    f"{path}: has another name elsewhere (a hard link), and the run would write "
                    "into that file too; put a copy in its place"
                )
        try:
            with locked(self.path / LOCK) as held:
                self._locks[LOCK] = held
                remove_leftovers(self.path)
                try:
                    yield
                finally:
                    del self._locks[LOCK]
        except LockedError as error:
            raise RunFolderError(
                f"{self.path}: {error} works in this run's folder; wait for it, stop it, or choose "
                "another folder"
            ) from None

    def worker(self) -> Holder | None:
        return living_holder(self.path / LOCK)

    def refuse_links(self) -> None:
        found = next(find_irregular(self.path), None)
        if found is not None:
            path, kind = found
            raise RunFolderError(
                f"{path}: is {kind}, and what is written to a run's folder or read from it must "
                "lie there; put a file or folder in its place"
            )

    @contextmanager
    def serving(self) -> Iterator[None]:
        """Hold the parameter server's lock; a RunFolderError if another has it after half a minute.

        A server may outlive its killed driver by seconds.
        """
        try:
            with locked(self.path / SERVER, wait_s=SERVER_WAIT_S):
                yield
        except LockedError as error:
            raise RunFolderError(
                f"{self.path}: the parameter server of another driver, {error}, still "
                "writes in this run's folder; end it, or wait for its end"
            ) from None
