"""Lines for people: what is said of a run is text, whatever stands in the files that it is about.

A folder of somebody else's may hold a name with escape sequences, by which a terminal would change
its title or hide what follows. Everything that leap_rl prints goes through `say`.
"""

from __future__ import annotations

import logging
import re
from typing import Final, TextIO

LONGEST_WORD: Final = 300
"""Characters of a word of an error; a path may have thousands, and hide what is wrong with it."""
_HEAD, _TAIL = 200, 80

_LONG_WORD = re.compile(rf"\S{{{LONGEST_WORD + 1},}}")


def say(text: str = "", *, file: TextIO | None = None, end: str = "\n") -> None:
    """Print a text, on stdout if no file is given, what is not printable escaped."""
    print(printable(text), file=file, end=end, flush=True)


def printable(text: str) -> str:
    """Return a text with what is not printable, line ends aside, as Python's escape sequences."""
    if text.isprintable():
        return text
    return "".join(
        one if one.isprintable() or one == "\n" else one.encode("unicode_escape").decode()
        for one in text
    )


def in_a_line(error: BaseException) -> str:
    """Return an error's type and text, in one line."""
    try:
        said = str(error)
    except Exception:  # somebody's own class
        said = "its message cannot be shown"
    return " ".join(f"{type(error).__name__}: {said}".split())


def shortened(text: str) -> str:
    """Return a text with the middle of words of more than `LONGEST_WORD` characters left out."""
    return _LONG_WORD.sub(lambda found: f"{found[0][:_HEAD]}...{found[0][-_TAIL:]}", text)


class _Formatter(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        return printable(super().format(record))


def escape_logged() -> None:
    """Have the warnings that no handler takes, which Python prints on stderr, printable too."""
    if logging.lastResort is not None:
        logging.lastResort.setFormatter(_Formatter())
