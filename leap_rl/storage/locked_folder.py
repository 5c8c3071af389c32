"""A run's folder as a place that one driver and one server write to.

Symbolic links, pipes and devices are refused, except wandb's own links: a write would go where they
point. A driver and a server write only while they hold the locks that they took.
"""

from __future__ import annotations

import os
import time
import weakref
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

from leap_rl.storage.durable_files import make_folder, remove, remove_leftovers, write_atomically
from leap_rl.storage.links import find_irregular, opened_folder
from leap_rl.storage.run_lock import Holder, LockedError, living_holder, locked

LOCK = ".lock"
SERVER = ".server"
IN_PLACE = (LOCK, SERVER, "metrics.jsonl")
"""Written where they are. Every other file is replaced, which leaves its other names alone."""


_STOPS = " while a run went on there; another command may work there now, so this one stops"


class RunFolderError(ValueError):
    """A run's folder lacks something, or what it holds is damaged."""


class LockedFolder:
    """Writes to one run's folder, as long as this process holds the locks that it took there."""

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path).absolute()
        self.url: str | None = None
        """Where the run lives, if that is not at `path`."""
        self._locks: dict[str, os.stat_result] = {}
        """The locks, by name, as they were when this process began to rely on them."""

    @property
    def place(self) -> str:
        """Where the run lives, as `run_dir` says it."""
        return self.url or str(self.path)

    def refresh(self) -> None:
        """Look at what others have made of the run, where it lives elsewhere."""

    def publish(self, below: str) -> None:
        """Bring what was written without the lock to where the run lives, if that is elsewhere.

        Args:
            below: What its names, in the folder, begin with.
        """

    def check(self) -> None:
        """Raise if the run must not go on here.

        Raises:
            OSError: The lock, or the whole folder, was removed or replaced, so that another command
                may work there.
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
        """From now on write only as long as the locks are those that are in the folder now.

        For a server, whose driver holds one of them. Without locks, nothing changes.
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
            OSError: It could not be written, or the run must not go on here.
        """
        self.check()
        write_atomically(path, data, root=self.path)

    def remove(self, path: Path, *, ignore_errors: bool = False) -> None:
        """Remove a file of the folder, or a folder in it, through no link.

        Args:
            path: What to remove.
            ignore_errors: Whether it may stay, as a network file system keeps what is still open.

        Raises:
            OSError: It could not be removed, or the run must not go on here.
        """
        self.check()
        with suppress(*([OSError] if ignore_errors else [])):
            remove(path, root=self.path)

    def set_aside(self, path: Path) -> Path:
        """Rename a damaged file of the folder, through no link, and return its new path.

        Raises:
            OSError: It could not be renamed.
        """
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
        self._refuse_other_names()
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
        """Refuse a folder with links, pipes or devices, but for the links that wandb makes.

        Raises:
            RunFolderError: There is one.
        """
        found = next(find_irregular(self.path), None)
        if found is not None:
            path, kind = found
            raise RunFolderError(
                f"{path}: is {kind}, and what is written to a run's folder or read from it must "
                "lie there; put a file or folder in its place"
            )

    def _refuse_other_names(self) -> None:
        for path in (self.path / name for name in IN_PLACE):
            if path.exists() and path.stat().st_nlink > 1:
                raise RunFolderError(
                    f"{path}: has another name elsewhere (a hard link), and the run would write "
                    "into that file too; put a copy in its place"
                )

    @contextmanager
    def serving(self, within_s: float = 30.0) -> Iterator[None]:
        """Be the one parameter server that writes here.

        A server may outlive its killed driver by seconds: that of the next driver waits for it.

        Raises:
            RunFolderError: Another one still writes here after ``within_s`` seconds.
        """
        deadline_s = time.monotonic() + within_s
        with ExitStack() as held:
            while True:
                try:
                    held.enter_context(locked(self.path / SERVER))
                    break
                except LockedError as error:
                    if time.monotonic() > deadline_s:
                        raise RunFolderError(
                            f"{self.path}: the parameter server of another driver, {error}, still "
                            "writes in this run's folder; end it, or wait for its end"
                        ) from None
                time.sleep(0.1)
            yield
