"""Reads TensorBoard event files back, for tests."""

from __future__ import annotations

from pathlib import Path

from tensorboard.backend.event_processing.event_file_loader import RawEventFileLoader
from tensorboard.compat.proto.event_pb2 import Event


def rows(folder: Path, axis: str) -> list[dict[str, float]]:
    """One row for each global step in the folder's files, in the order in which it came first."""
    by_step: dict[int, dict[str, float]] = {}
    for path in sorted(folder.glob("events.out.tfevents.*")):
        for raw in RawEventFileLoader(str(path)).Load():
            event = Event.FromString(raw)
            for value in event.summary.value:
                row = by_step.setdefault(event.step, {axis: event.step})
                row[value.tag] = value.simple_value
    return list(by_step.values())
