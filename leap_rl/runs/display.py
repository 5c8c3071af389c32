"""How commands and places are spelled for the user."""

from __future__ import annotations

import shlex
import shutil
import sys
from pathlib import Path

from leap_rl.storage.run_folder import RunFolder


def tell(text: str) -> None:
    """Print a message of this program on stderr."""
    print(f"leap-rl: {text}", file=sys.stderr, flush=True)


def program() -> str:
    """Return how the user can call this program again from where he is."""
    called = Path(sys.argv[0])
    if called.name != "leap-rl":
        return "python -m leap_rl"
    return "leap-rl" if shutil.which("leap-rl") else shown(called)


def quoted(where: Path | RunFolder) -> str:
    """Return the same as `shown`, as a word of a shell's command."""
    return shlex.quote(shown(where))


def shown(where: Path | RunFolder) -> str:
    """Return a path as the user would write it from where he is, or where a run lives."""
    if isinstance(where, RunFolder) and where.url is not None:
        return where.url
    path = (where.path if isinstance(where, RunFolder) else where).absolute()
    return str(path.relative_to(Path.cwd())) if path.is_relative_to(Path.cwd()) else str(path)
