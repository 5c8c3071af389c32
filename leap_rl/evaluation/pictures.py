"""The pictures of a report: each drawn to files, and taken from there."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from leap_rl.evaluation.page import Picture
from leap_rl.evaluation.summary import Summary


def meta_run_pictures(rows: Sequence[Mapping[str, float]], folder: Path) -> list[Picture]:
    """Return the pictures of a meta-training run's rows; those that there is something for."""
    return []


def evaluation_pictures(summary: Summary, folder: Path) -> list[Picture]:
    """Return the pictures of an evaluation."""
    return []
