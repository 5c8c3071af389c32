"""This process's own folder for Ray's files."""

from __future__ import annotations

import atexit
import os
import shutil
import sys
import tempfile
from functools import cache
from pathlib import Path

BELOW_BYTES = 93
"""What `/leap_rl-PID-XXXXXXXX/r` and Ray's session and socket names take of a socket's path."""


@cache
def private_folder() -> Path:
    """Return this process's own folder for Ray's files and token, removed when it ends.

    Ray puts sockets below it, whose paths must not exceed 107 bytes, on macOS 103: a long TMPDIR is
    not used.
    """
    parent = tempfile.gettempdir()
    longest = 103 if sys.platform == "darwin" else 107
    if len(os.fsencode(parent)) > longest - BELOW_BYTES:
        parent = "/tmp"
    owner = os.getpid()
    folder = Path(tempfile.mkdtemp(prefix=f"leap_rl-{owner}-", dir=parent))  # for this user alone

    def remove() -> None:
        if os.getpid() == owner:  # not in a forked child
            shutil.rmtree(folder, ignore_errors=True)

    atexit.register(remove)
    return folder
