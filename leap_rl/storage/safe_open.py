"""Safe reads in untrusted folders: refuses symbolic links, pipes and devices.

A link redirects writes and removals out of the folder; a pipe blocks its reader. `find_irregular`
finds them when a run's folder is opened. Against links that are swapped in later, folders are
opened one by one without following links (`opened_folder`), and only regular files are read
(`core.regular_file`).
"""

from __future__ import annotations

import errno
import os
import re
import stat
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

from leap_rl.core.regular_file import naming

_RUN = r"(offline-)?run-[^/]+"
_OF_WANDB = re.compile(
    rf"wandb/(latest-run|debug\.log|debug-internal\.log)|wandb/{_RUN}/logs/debug-core\.log"
)
"""wandb's own links; it replaces them and never writes through one."""
DEEPEST: Final = 32
"""Folders within one another; a run has some seven. The standard library recurses into them."""

_TARGET = re.compile(rf"{_RUN}(/logs/[^/]+)?")
"""Targets of the links beside the folders of wandb's runs."""


def find_irregular(folder: Path) -> Iterator[tuple[Path, str]]:
    """Yield everything below a folder that is neither a file nor a folder, and what it is in words.

    The folder may be a link itself. wandb's own links and entries that vanish are left out. The
    last is a folder that is nested too deep, if there is one.
    """
    for parent, entries in _walk(folder):
        if len(Path(parent).relative_to(folder).parts) > DEEPEST:
            yield Path(parent), f"nested more than {DEEPEST} deep"
            return
        for path, kind in _irregular(entries):
            if not _is_of_wandb(path, path.relative_to(folder).as_posix()):
                yield path, kind


def irregular_in(folder: Path) -> Iterator[tuple[Path, str]]:
    """Yield the same of what lies in a folder itself; nothing where it is none."""
    if folder.is_dir():
        with os.scandir(folder) as found:
            yield from _irregular(sorted(found, key=lambda entry: entry.name))


def _irregular(entries: Iterable[os.DirEntry[str]]) -> Iterator[tuple[Path, str]]:
    for entry in entries:
        if entry.is_symlink():
            yield Path(entry.path), "a symbolic link"
        elif not (entry.is_file(follow_symlinks=False) or entry.is_dir(follow_symlinks=False)):
            yield Path(entry.path), "no file (a pipe, a socket or a device)"


def files_below(folder: Path) -> Iterator[Path]:
    """Yield the files below a folder, however deep they are; no folder's link is followed."""
    for _, entries in _walk(folder):
        yield from (Path(entry.path) for entry in entries if entry.is_file(follow_symlinks=False))


def _walk(folder: Path) -> Iterator[tuple[str, list[os.DirEntry[str]]]]:
    waiting = [str(folder)]
    while waiting:
        parent = waiting.pop()
        with suppress(FileNotFoundError), os.scandir(parent) as found:
            entries = sorted(found, key=lambda entry: entry.name)
            yield parent, entries
            waiting += [entry.path for entry in entries if entry.is_dir(follow_symlinks=False)]


def _is_of_wandb(path: Path, name: str) -> bool:
    if not _OF_WANDB.fullmatch(name) or not path.is_symlink():
        return False
    # A wandb run's folder contains a link to wandb's log in the user's cache.
    return name.count("/") > 1 or _TARGET.fullmatch(os.readlink(path)) is not None


@contextmanager
def opened_folder(path: Path, *, root: Path | None = None, make: bool = False) -> Iterator[int]:
    """Open a folder, for the functions of `os` that take a `dir_fd`.

    No link below ``root`` is followed, but an OSError; without it all are. With ``make``, missing
    folders are made and synced first.
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
    """Open the folder at ``path`` below its parent's descriptor ``at``; OSError if it is a link."""
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
