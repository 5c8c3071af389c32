"""What is known of a run's command besides its config."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from leap_rl.tracking.metrics import Row
from leap_rl.training.config import Joined


@dataclass(frozen=True, kw_only=True)
class Invocation:
    """How a command was called."""

    started_s: float
    """When, on the monotonic clock."""
    trusts_imports: bool = False
    """Whether the command line says so. It is no option: a file cannot say it."""
    supervised: bool = False
    """Whether another process starts this one again when it is killed."""
    on_row: Callable[[Row], object] = lambda row: None
    """Called with each row once it is logged."""
    rows_seen: int = 0
    """Of the rows that are logged already, those that it is not called with."""
    joined: Joined | None = None
    """A cluster whose trainers serve the run; none for trainers of its own."""
