"""Where rows go: the sink protocol, and the tracker that hands each row to every sink.

JSONL is the truth and is written last; TensorBoard and wandb mirror it. A process killed between
the two leaves a mirrored row that JSONL lacks, and on resume every row after JSONL's last is logged
again: TensorBoard may hold a row twice but never misses one, and wandb holds each once.

A mirror that fails is reported once and left: the run continues without it. When JSONL fails, the
run ends.
"""

from __future__ import annotations

import math
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
    """Takes rows one at a time and owns whatever it writes them into."""

    name: ClassVar[str]
    """What messages to the user call it."""

    @abstractmethod
    def write(self, row: Row, axis: Axis) -> None:
        """Record `row`, whose place on `axis` is `row[axis]`."""

    @abstractmethod
    def close(self) -> None:
        """Write out what is buffered and let go. Nothing is written afterwards."""

    # What only some can show; the others go without.

    def write_clip(self, name: str, path: Path) -> None:  # noqa: B027
        """Record a film, an .mp4."""

    def write_table(  # noqa: B027
        self, name: str, columns: Sequence[str], rows: Sequence[Sequence[Cell]]
    ) -> None:
        """Record a table."""

    def write_page(self, name: str, path: Path) -> None:  # noqa: B027
        """Record a self-contained page of HTML."""

    def write_initialization(  # noqa: B027
        self, meta_step: int, path: Path, *, newest: bool, metadata: Mapping[str, object]
    ) -> None:
        """Record the file of an initialization, which stays where it is."""

    def fail(self, reason: str) -> None:  # noqa: B027
        """Tell who follows the run that it stopped on an error, for this reason."""


def refuse_non_finite(row: Row) -> None:
    """Raise a ValueError that names the key if any value of `row` is NaN or infinite."""
    for key, value in row.items():
        if not math.isfinite(value):
            raise ValueError(f"{key} = {value}: only finite numbers can be recorded")
