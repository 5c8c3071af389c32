"""Where a run's rows go.

JSONL is the truth and is written last; TensorBoard and wandb mirror it. A process killed between
the two leaves a mirrored row that JSONL lacks, and on resume every row after JSONL's last is logged
again: TensorBoard may hold a row twice but never misses one, and wandb holds each once.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import ClassVar, TypeAlias

from leap_rl.tracking.metrics import Axis, Row

Cell: TypeAlias = str | float | int | None
"""Of a table."""


class TrackingError(ValueError):
    """A sink cannot be opened as the tracking config asks; the message says the way out."""


class Sink(ABC):
    """Takes rows, and shows other media if it can; the methods here do nothing."""

    name: ClassVar[str]
    """In messages to the user."""

    @abstractmethod
    def write(self, row: Row, axis: Axis) -> None:
        """Record `row`, whose place on `axis` is `row[axis]`."""

    @abstractmethod
    def close(self) -> None:
        """Flush and close. Nothing is written afterwards."""

    def write_file(self, name: str, path: Path) -> None:  # noqa: B027
        """Record a video (.mp4) or a self-contained page (.html)."""

    def write_table(  # noqa: B027
        self, name: str, columns: Sequence[str], rows: Sequence[Sequence[Cell]]
    ) -> None:
        """Record a table."""

    def write_initialization(  # noqa: B027
        self, meta_step: int, path: Path, *, newest: bool, metadata: Mapping[str, object]
    ) -> None:
        """Record the file of an initialization, which stays where it is."""

    def fail(self, reason: str) -> None:  # noqa: B027
        """Report that the run stopped on an error."""
