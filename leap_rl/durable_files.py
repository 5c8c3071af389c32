"""Files that are there after a crash, whole."""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


def write_atomically(path: Path, data: bytes) -> None:
    """Write ``data`` to ``path`` such that a crash leaves the old content or the new, synced.

    Raises:
        OSError: It could not be written; the message names the file.
    """
    make_folder(path.parent)
    aside = path.with_name(f".{path.name}.tmp")
    try:
        write_synced(aside, data)
    except OSError:
        aside.unlink(missing_ok=True)  # a full disk needs the room
        raise
    os.replace(aside, path)
    sync_folder(path.parent)


def write_synced(path: Path, data: bytes) -> None:
    """Write ``data`` to ``path`` and onto the disk; a crash may leave a part of it.

    Raises:
        OSError: It could not be written; the message names the file.
    """
    with naming(path), open(path, "wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())


def read_file(path: Path, limit: int = -1) -> bytes:
    """Return the contents of a file, at most `limit` bytes of it.

    Raises:
        OSError: It cannot be read, or is no regular file: a pipe would be waited for.
    """
    with naming(path), open(path, "rb", opener=_open_at_once) as file:
        check_regular(file.fileno())
        return file.read(limit)


def _open_at_once(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_NONBLOCK)


def check_regular(descriptor: int) -> None:
    """Raise an OSError if an open file is a pipe, a device or a folder."""
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        raise OSError(errno.EINVAL, "is no regular file")


@contextmanager
def naming(path: Path) -> Iterator[None]:
    """Name the file in an OSError that is raised here: a full disk does not say of which file."""
    try:
        yield
    except OSError as error:
        if error.errno is None or error.filename is not None:
            raise
        raise OSError(error.errno, error.strerror, str(path)) from None


def make_folder(path: Path) -> None:
    """Make a folder and those above it that are missing, and bring them onto the disk.

    Raises:
        OSError: It could not be made; the message names it.
    """
    made = []
    folder = path
    while not folder.exists():
        made.append(folder)
        folder = folder.parent
    path.mkdir(parents=True, exist_ok=True)
    for folder in reversed(made):
        sync_folder(folder.parent)


def sync_folder(path: Path) -> None:
    """Bring a folder's entries onto the disk: files that were made in it, renamed or removed.

    Raises:
        OSError: The disk fails; the message names the folder.
    """
    with naming(path):
        descriptor = os.open(path, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
