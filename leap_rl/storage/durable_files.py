"""Atomic, durable writes that follow no link.

Contents are written under a random name, which no other writer shares or can prepare, and then
renamed. With a `root`, a folder that contains the file, no link below it is followed. OSErrors name
the file.
"""

from __future__ import annotations

import os
import re
import secrets
import shutil
import stat
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO, Final

from leap_rl.core.regular_file import naming
from leap_rl.storage.safe_open import enter_folder, opened_folder

LEFT_S: Final = 600.0
"""Temporary files older than this were left by a process that died."""

_NEW: Final = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW
_TEMPORARY = re.compile(r"\..+\.[0-9a-f]{16}\.tmp", re.DOTALL)


def write_atomically(
    path: Path, data: bytes, *, root: Path | None = None, synced: bool = True
) -> None:
    """Write to ``path``, in new folders too; a crash leaves the old content or the new."""
    with open_atomically(path, root=root, synced=synced) as file:
        file.write(data)


@contextmanager
def open_atomically(
    path: Path, *, root: Path | None = None, synced: bool = True
) -> Iterator[BinaryIO]:
    """Open a file that is renamed to ``path`` at the end, unless the block raises."""
    with naming(path), opened_folder(path.parent, root=root, make=True) as folder:
        aside = _temporary(path.name)
        try:
            with _new_file(aside, folder, synced=synced) as file:
                yield file
            os.replace(aside, path.name, src_dir_fd=folder, dst_dir_fd=folder)
        except BaseException:
            with suppress(OSError):
                os.unlink(aside, dir_fd=folder)  # a full disk needs the room
            raise
        if synced:
            os.fsync(folder)


def write_folder(path: Path, files: Mapping[str, bytes], *, root: Path | None = None) -> None:
    """Replace a folder by files, contents by name, synced; a crash leaves all of it or nothing."""
    with naming(path), opened_folder(path.parent, root=root, make=True) as parent:
        aside = _temporary(path.name)
        os.mkdir(aside, dir_fd=parent)
        try:
            folder = enter_folder(parent, path.with_name(aside))
            try:
                for name, data in files.items():
                    with naming(path / name), _new_file(name, folder) as file:
                        file.write(data)
                os.fsync(folder)
            finally:
                os.close(folder)
            with suppress(FileNotFoundError):
                shutil.rmtree(path.name, dir_fd=parent)
            os.rename(aside, path.name, src_dir_fd=parent, dst_dir_fd=parent)
        except BaseException:
            shutil.rmtree(aside, ignore_errors=True, dir_fd=parent)
            raise
        os.fsync(parent)


def remove(path: Path, *, root: Path) -> None:
    """Remove a file or a folder with its contents, if it exists; OSError for one through a link."""
    gone = suppress(FileNotFoundError)
    with gone, naming(path), opened_folder(path.parent, root=root) as folder:
        try:
            os.unlink(path.name, dir_fd=folder)
        except (IsADirectoryError, PermissionError):  # which of them a folder is, differs
            if not stat.S_ISDIR(os.stat(path.name, dir_fd=folder, follow_symlinks=False).st_mode):
                raise
            shutil.rmtree(path.name, dir_fd=folder)


def is_temporary(name: str) -> bool:
    """Whether a file or folder of that name is one that is about to be renamed, or was left so."""
    return _TEMPORARY.fullmatch(name) is not None


def remove_leftovers(root: Path) -> None:
    """Remove old temporary files and folders below a folder."""
    before = time.time() - LEFT_S
    for parent, folders, files in os.walk(root):
        for name in filter(_TEMPORARY.fullmatch, (*folders, *files)):
            path = Path(parent, name)
            with suppress(OSError):
                if path.lstat().st_mtime < before:
                    remove(path, root=root)
        folders[:] = [name for name in folders if not _TEMPORARY.fullmatch(name)]


def make_folder(path: Path) -> None:
    """Make a folder and missing ones above it, synced to the disk."""
    with opened_folder(path, make=True):
        pass


def sync_folder(path: Path) -> None:
    """Sync a folder's entries to the disk: files that were made in it, renamed or removed."""
    with naming(path), opened_folder(path) as folder:
        os.fsync(folder)


def _temporary(name: str) -> str:
    return f".{name}.{secrets.token_hex(8)}.tmp"


@contextmanager
def _new_file(name: str, folder: int, *, synced: bool = True) -> Iterator[BinaryIO]:
    with open(os.open(name, _NEW, 0o644, dir_fd=folder), "wb") as file:
        yield file
        file.flush()
        if synced:
            os.fsync(file.fileno())
