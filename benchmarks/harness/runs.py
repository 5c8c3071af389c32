"""Runs as parts of an experiment, each resumed where it stopped."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from leap_rl.evaluation.results import EvaluationResults, read_evaluation
from leap_rl.runs.process import Request, call
from leap_rl.storage.run_folder import INITIALIZATION, RunFolder
from leap_rl.tracking.jsonl import read_rows

_QUIET: Final = {"tracking.console": "quiet", "tracking.tensorboard": False}


def meta_train(path: Path, options: Mapping[str, Any], *, meta_steps: int) -> Path:
    """Meta-train in a process of its own, one task after another, and return the initialization.

    Args:
        path: The run's folder. A run that is there is resumed, or taken as it is if it is
            done.
        options: Of `leap-rl train` by dotted name, in which the number of meta-steps is missing.
        meta_steps: How many.

    Raises:
        ValueError: The options are refused, as they are wrong or not those that made the run that
            is there; the message is that of `leap-rl train`.
        RunFailedError: It failed otherwise.
    """
    folder, options = RunFolder(path), {**options, "meta.meta_steps": meta_steps}
    if not folder.exists():
        # What was torn before it was a run is of no use.
        _make("train", path, {**options, "runtime.kind": "local"})
    elif (folder.latest() or 0) < meta_steps:
        _resume(path, options)
    return folder.checkpoint(meta_steps) / INITIALIZATION


def evaluate(
    path: Path, inits: Sequence[str], options: Mapping[str, Any], *, trainers: int = 1
) -> EvaluationResults:
    """Evaluate initializations in processes of their own, and return what their agents learned.

    Args:
        path: The evaluation's folder. One that is there is resumed, or taken as it is if it is
            done.
        inits: What is compared, as `leap-rl evaluate --init` has it.
        options: Of `leap-rl evaluate` by dotted name.
        trainers: How many agents learn at a time; more than one take Ray.

    Raises:
        ValueError: The options are refused; the message is that of `leap-rl evaluate`.
        RunFailedError: It failed otherwise.
    """
    folder = RunFolder(path)
    if not folder.exists():
        runtime: dict[str, Any] = {"runtime.kind": "local"}
        if trainers > 1:
            runtime = {"runtime.kind": "ray", "runtime.trainers": trainers}
        _make("evaluate", path, {**options, **runtime}, inits)
    elif not folder.latest():
        _resume(path, {})
    return read_evaluation(folder)


def rows_of(path: Path) -> list[dict[str, Any]]:
    """Return the rows of a run's metrics."""
    return read_rows(path / "metrics.jsonl")


def _make(command: str, path: Path, options: Mapping[str, Any], inits: Sequence[str] = ()) -> None:
    options = {**options, **_QUIET}
    call(
        Request(
            action="make",
            command=command,
            place=str(path),
            options=options,
            inits=tuple(inits),
            quiet=True,
        )
    )


def _resume(path: Path, options: Mapping[str, Any]) -> None:
    call(Request(action="resume", command="resume", place=str(path), options=options, quiet=True))
