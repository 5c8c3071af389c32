"""Symbolic links in a folder that somebody else may have made."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from pathlib import Path


def links(folder: Path, names: Sequence[str]) -> Iterator[Path]:
    """Yield the symbolic links among some entries of a folder, and below those that are folders.

    Args:
        folder: Which may be a link itself.
        names: Relative paths in it; they need not exist.
    """
    for name in names:
        path = folder / name
        if path.is_symlink():
            yield path
        elif path.is_dir():
            for parent, folders, files in os.walk(path):
                below = (Path(parent) / entry for entry in (*folders, *files))
                yield from (entry for entry in below if entry.is_symlink())
