"""A run's folder as a place that one driver and one server write to.

Symbolic links, pipes and devices are refused, except wandb's own links: a write would go where they
point. A driver and a server write only while they hold the locks that they took.
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
"""Written where they are. Every other file is replaced, which leaves its hard links alone."""

SERVER_WAIT_S = 30.0

_STOPS = " while a run went on there; another command may work there now, so this one stops"


class RunFolderError(ValueError):
    """A run's folder lacks something, or what it holds is damaged."""


class LockedFolder:
    """Writes to one run's folder, as long as its locks are those that this process relies on."""

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path).absolute()
        self.url: str | None = None
        """Where the run lives, if that is not at `path`."""
        self._locks: dict[str, os.stat_result] = {}
        """The lock files, by name, when this process began to rely on them."""

    @property
    def place(self) -> str:
        """Where the run lives, as `run_dir` says it."""
        return self.url or str(self.path)

    def refresh(self) -> None:
        """Fetch what others have done, where the run lives elsewhere."""

    def publish(self, below: str) -> None:
        """Upload files whose names begin with ``below``, where the run lives elsewhere."""

    def check(self) -> None:
        """Raise an OSError if this process must not write to the run any more.

        It must not once a lock, or the whole folder, was removed or replaced: another command may
        work there.
        """
        for name, held in self._locks.items():
            path = self.path / name
            try:
                there = os.stat(path, follow_symlinks=False)
            except FileNotFoundError:
                raise OSError(f"{path}: was removed{_STOPS}") from None
            if not os.path.samestat(held, there):
                raise OSError(f"{path}: was replaced{_STOPS}")

    def rely_on_locks(self) -> None:
        """From now on write only while the lock files in the folder, if any, stay the same.

        For a server, whose driver holds one of them.
        """
        for name in (LOCK, SERVER):
            with suppress(FileNotFoundError):
                descriptor = os.open(self.path / name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
                # As long as it is open no other file gets its number.
                weakref.finalize(self, os.close, descriptor)
                self._locks[name] = os.fstat(descriptor)

    def write(self, path: Path, data: bytes) -> None:
        """Write a file of the folder: whole or not at all, and through no link.

        Raises:
            OSError: It could not be written, or as `check`.
        """
        self.check()
        write_atomically(path, data, root=self.path)

    def remove(self, path: Path, *, ignore_errors: bool = False) -> None:
        """Remove a file of the folder, or a folder in it, through no link.

        With ``ignore_errors`` it may stay, as on a network file system while it is open.

        Raises:
            OSError: It could not be removed, or as `check`.
        """
        self.check()
        with suppress(*([OSError] if ignore_errors else [])):
            remove(path, root=self.path)

    def set_aside(self, path: Path) -> Path:
        """Rename a damaged file of the folder, through no link, and return its new path."""
        aside = path.with_name(f"{path.name}.damaged")
        with opened_folder(path.parent, root=self.path) as parent:
            os.replace(path.name, aside.name, src_dir_fd=parent, dst_dir_fd=parent)
        return aside

    @contextmanager
    def lock(self) -> Iterator[None]:
        """Keep other processes from working in the folder.

        Raises:
            RunFolderError: Another one does, or there are symbolic links in it.
        """
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
        """Return the process that works in the folder, if one is alive; takes no lock."""
        return living_holder(self.path / LOCK)

    def refuse_links(self) -> None:
        """Raise a RunFolderError for links, pipes or devices, but for the links of wandb."""
        found = next(find_irregular(self.path), None)
        if found is not None:
            path, kind = found
            raise RunFolderError(
                f"{path}: is {kind}, and what is written to a run's folder or read from it must "
                "lie there; put a file or folder in its place"
            )

    @contextmanager
    def serving(self) -> Iterator[None]:
        """Be the one parameter server that writes here.

        A server may outlive its killed driver by seconds: the next driver's server waits for it.

        Raises:
            RunFolderError: Another one still writes here after half a minute.
        """
        try:
            with locked(self.path / SERVER, wait_s=SERVER_WAIT_S):
                yield
        except LockedError as error:
            raise RunFolderError(
                f"{self.path}: the parameter server of another driver, {error}, still "
                "writes in this run's folder; end it, or wait for its end"
            ) from None
