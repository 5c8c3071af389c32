"""Runs of meta-training as parts of an experiment, each resumed where it stopped."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from leap_rl.runs.process import Request, call
from leap_rl.storage.run_folder import INITIALIZATION, RunFolder
from leap_rl.tracking.jsonl import read_rows

_QUIET: Final = {"tracking.console": "quiet", "tracking.tensorboard": False}


def meta_train(
    path: Path, options: Mapping[str, Any], *, meta_steps: int, trusts_imports: bool = False
) -> Path:
    """Meta-train in a process of its own, one task after another, and return the initialization.

    Args:
        path: The run's folder. A run that is there is resumed, or taken as it is if it is
            done.
        options: Of `leap-rl train` by dotted name, in which the number of meta-steps is missing.
        meta_steps: How many.
        trusts_imports: Whether modules may be imported that an option names.

    Raises:
        ValueError: The options are refused, as they are wrong or not those that made the run that
            is there; the message is that of `leap-rl train`.
        RunFailedError: It failed otherwise.
    """
    folder, options = RunFolder(path), {**options, "meta.meta_steps": meta_steps}
    place = str(path)
    if not folder.exists():
        # What was torn before it was a run is of no use.
        options = {**options, "runtime.kind": "local", **_QUIET}
        request = Request(action="make", command="train", place=place, options=options, quiet=True)
        call(replace(request, trusts_imports=trusts_imports))
    elif (folder.latest() or 0) < meta_steps:
        request = Request(
            action="resume", command="resume", place=place, options=options, quiet=True
        )
        call(replace(request, trusts_imports=trusts_imports))
    return folder.checkpoint(meta_steps) / INITIALIZATION


def rows_of(path: Path) -> list[dict[str, Any]]:
    """Return the rows of a run's metrics."""
    return read_rows(path / "metrics.jsonl")
