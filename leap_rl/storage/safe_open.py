"""Folders that somebody else may have made: what in them is neither a file nor a folder.

A symbolic link leads writes and removals out of the folder, and a pipe stops who reads it. They are
searched for when a folder is opened (`find_irregular`). What is swapped in afterwards meets
descriptors: folders are entered one by one without following links (`opened_folder`), and files are
read only if they are regular ones (`read_regular`).
"""

from __future__ import annotations

import errno
import os
import re
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

_RUN = r"(offline-)?run-[^/]+"
_OF_WANDB = re.compile(
    rf"wandb/(latest-run|debug\.log|debug-internal\.log)|wandb/{_RUN}/logs/debug-core\.log"
)
"""wandb's own links; it replaces them, and writes through none."""
_TARGET = re.compile(rf"{_RUN}(/logs/[^/]+)?")
"""Where those beside the runs' folders point to."""


def find_irregular(folder: Path) -> Iterator[tuple[Path, str]]:
    """Yield what is neither a file nor a folder below a folder, and in words what it is.

    The folder may be a link itself. wandb's own links are left out, and what vanishes meanwhile.
    """
    for parent, entries in _walk(folder):
        for entry in entries:
            if entry.is_symlink():
                name = Path(parent, entry.name).relative_to(folder).as_posix()
                if not _is_of_wandb(entry.path, name):
                    yield Path(entry.path), "a symbolic link"
            elif not (entry.is_file(follow_symlinks=False) or entry.is_dir(follow_symlinks=False)):
                yield Path(entry.path), "no file (a pipe, a socket or a device)"


def _walk(folder: Path) -> Iterator[tuple[str, list[os.DirEntry[str]]]]:
    waiting = [str(folder)]
    while waiting:
        parent = waiting.pop()
        with suppress(FileNotFoundError), os.scandir(parent) as found:
            entries = sorted(found, key=lambda entry: entry.name)
            yield parent, entries
            waiting += [entry.path for entry in entries if entry.is_dir(follow_symlinks=False)]


def _is_of_wandb(path: str, name: str) -> bool:
    if not _OF_WANDB.fullmatch(name):
        return False
    # A run's folder holds one to wandb's log in the user's cache.
    return name.count("/") > 1 or _TARGET.fullmatch(os.readlink(path)) is not None


@contextmanager
def opened_folder(path: Path, *, root: Path | None = None, make: bool = False) -> Iterator[int]:
    """Open a folder, for the functions of `os` that take a `dir_fd`.

    Args:
        path: The folder.
        root: A folder that it lies in. No link below it is followed; without it all are.
        make: Make missing folders, which are on the disk when it is opened.

    Raises:
        OSError: It cannot be opened, or there is a link on the way.
    """
    root = root or path
    if make:
        _make(root)
    at = os.open(root, os.O_RDONLY | os.O_DIRECTORY)
    try:
        here = root
        for name in path.relative_to(root).parts:
            here /= name
            below = enter_folder(at, here, make=make)
            os.close(at)
            at = below
        yield at
    finally:
        os.close(at)


def _make(path: Path) -> None:
    missing = []
    while not path.exists():
        missing.append(path)
        path = path.parent
    for folder in reversed(missing):
        folder.mkdir(exist_ok=True)
        with naming(folder), opened_folder(folder.parent) as parent:
            os.fsync(parent)


def enter_folder(at: int, path: Path, *, make: bool = False) -> int:
    """Return a descriptor of a folder, which is no link, in the folder that is open as ``at``.

    One that is made is on the disk then.

    Raises:
        OSError: It cannot be opened, or is a link.
    """
    if path.name in ("", ".."):
        raise OSError(errno.EINVAL, "leads out of the folder that it is named in", str(path))
    if make:
        with naming(path), suppress(FileExistsError):
            os.mkdir(path.name, dir_fd=at)
            os.fsync(at)
    try:
        return os.open(path.name, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW, dir_fd=at)
    except OSError as error:
        number, reason = error.errno, error.strerror
        with suppress(OSError):
            if stat.S_ISLNK(os.stat(path.name, dir_fd=at, follow_symlinks=False).st_mode):
                number, reason = errno.ELOOP, "is a symbolic link"
        raise OSError(number, reason, str(path)) from None


def read_regular(path: Path, largest: int = -1) -> bytes:
    """Return the content of a file, at most ``largest`` bytes unless that is negative.

    Raises:
        OSError: It is a link, pipe or device, or cannot be read.
    """
    flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK  # or a pipe would wait for its writer
    with naming(path), open(path, "rb", opener=lambda name, _: os.open(name, flags)) as file:
        if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
            raise OSError(errno.EINVAL, "is no regular file", str(path))
        content: bytes = file.read(largest)
        return content


@contextmanager
def naming(path: Path) -> Iterator[None]:
    """Name the file in an OSError that is raised here: a full disk does not say of which file."""
    try:
        yield
    except OSError as error:
        if error.errno is None or "/" in str(error.filename):  # else a name in an open folder
            raise
        raise OSError(error.errno, error.strerror, str(path)) from None
