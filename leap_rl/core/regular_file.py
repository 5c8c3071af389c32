"""Reads of files that others may have made: regular ones alone, of a limited size.

A pipe blocks whoever opens it, and a device such as /dev/zero never ends.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

LARGEST: Final = 2**32
"""Bytes of a file that may hold parameters."""

LARGEST_TEXT: Final = 2**26
"""Bytes of one that holds text: options, states, cards."""


def read_regular(path: Path, largest: int = LARGEST, *, follows: bool = False) -> bytes:
    """Return a file's content.

    Args:
        path: The file.
        largest: Bytes that it may have.
        follows: Whether the file may be named by a symbolic link, as a user may.

    Raises:
        OSError: It cannot be read, is no regular file, or is larger; names the file.
    """
    # Without O_NONBLOCK a pipe waits for its writer.
    flags = os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | (0 if follows else os.O_NOFOLLOW)
    with naming(path), open(path, "rb", opener=lambda name, _: os.open(name, flags)) as file:
        if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
            raise OSError(errno.EINVAL, "is no regular file", str(path))
        if os.fstat(file.fileno()).st_size > largest:
            raise OSError(errno.EFBIG, f"is larger than {largest:,} bytes", str(path))
        # One may grow meanwhile.
        content: bytes = file.read(largest)
        return content


def read_given(path: str | Path, largest: int = LARGEST_TEXT) -> bytes:
    """Return the content of a file that a user names, as `read_regular`; links are followed."""
    return read_regular(Path(path), largest, follows=True)


@contextmanager
def naming(path: Path) -> Iterator[None]:
    """Add the file's name to OSErrors, such as that of a full disk, which has none."""
    try:
        yield
    except OSError as error:
        if error.errno is None or "/" in str(error.filename):  # else it is relative to a `dir_fd`
            raise
        raise OSError(error.errno, error.strerror, str(path)) from None
