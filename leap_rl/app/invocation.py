"""What a command knows besides its arguments."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Invocation:
    """How a command was called."""

    started_s: float
    """When, on the monotonic clock."""
    trusts_imports: bool = False
    """Whether the command line says so. It is no option: a file cannot say it."""
