"""What a command knows besides its arguments."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

TRUST_IMPORTS: Final = "--trust_imports"
"""The word, of any command, without which no module is imported that a config names."""


@dataclass(frozen=True, kw_only=True)
class Invocation:
    """How a command was called."""

    started_s: float
    """When, on the monotonic clock."""
    trusts_imports: bool = False
    """Whether the command line says so. It is no option: a file cannot say it."""
