"""Interface of the sinks that record a run's rows.

JSONL is the truth and written last; TensorBoard and wandb mirror it. After a kill in between, a
resume logs the rows after JSONL's last one again: TensorBoard may have a row twice but never misses
one, and wandb has each once.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import ClassVar, TypeAlias

from leap_rl.tracking.metrics import Axis, Row

Cell: TypeAlias = str | float | int | None


class TrackingError(ValueError):
    """A sink cannot be opened as configured; the message says what to do."""


class Sink(ABC):
    """Records rows; a sink that can record other media overrides more methods."""

    name: ClassVar[str]
    """For messages to the user."""

    @abstractmethod
    def write(self, row: Row, axis: Axis) -> None:
        """Record `row`, which is at `row[axis]` on `axis`."""

    @abstractmethod
    def close(self) -> None:
        """Flush and close."""

    def write_file(self, name: str, path: Path) -> None:  # noqa: B027
        """Record a video (.mp4) or a self-contained page (.html)."""

    def write_table(  # noqa: B027
        self, name: str, columns: Sequence[str], rows: Sequence[Sequence[Cell]]
    ) -> None:
        """Record a table."""

    def write_initialization(  # noqa: B027
        self, meta_step: int, path: Path, *, newest: bool, metadata: Mapping[str, object]
    ) -> None:
        """Record an initialization's file, which stays where it is."""

    def fail(self, reason: str) -> None:  # noqa: B027
        """Report that the run stopped on an error."""
