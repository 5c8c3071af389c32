"""The commands of leap-rl as parts of an experiment, each resumed where it stopped."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from leap_rl.core.errors import RunFailedError
from leap_rl.evaluation.results import Evaluation, read_evaluation
from leap_rl.storage.run_folder import INITIALIZATION, RunFolder
from leap_rl.tracking.jsonl import read_rows

EXIT_REFUSED: Final = 2
"""Of leap-rl, for bad input."""

_QUIET: Final = ("--tracking.console", "quiet", "--tracking.tensorboard", "false")


def meta_train(path: Path, argv: Sequence[str], *, meta_steps: int) -> Path:
    """Meta-train in a process of its own, one task after another, and return the initialization.

    Args:
        path: The run's folder. A run that is there is resumed, or taken as it is if it is
            done.
        argv: Options of `leap-rl train`, in which the number of meta-steps is missing.
        meta_steps: How many.

    Raises:
        ValueError: The command refuses the options, as they are wrong or not those that made the
            run that is there; the message is its own.
        RunFailedError: It failed otherwise; the message ends with its last line.
    """
    folder = RunFolder(path)
    if not folder.exists():
        # What was torn before it was a run is of no use.
        where = ["--run_dir", str(path), "--runtime.kind", "local"]
        _leap_rl("train", *argv, "--meta.meta_steps", str(meta_steps), *where, *_QUIET)
    elif (folder.latest() or 0) < meta_steps:
        _leap_rl("resume", str(path), *argv, "--meta.meta_steps", str(meta_steps))
    return folder.checkpoint(meta_steps) / INITIALIZATION


def evaluate(path: Path, argv: Sequence[str], *, trainers: int = 1) -> Evaluation:
    """Evaluate initializations in processes of their own, and return what their agents learned.

    Args:
        path: The evaluation's folder. One that is there is resumed, or taken as it is if it is
            done.
        argv: Options of `leap-rl evaluate`.
        trainers: How many agents learn at a time; more than one take Ray.

    Raises:
        ValueError: The command refuses the options; the message is its own.
        RunFailedError: It failed otherwise; the message ends with its last line.
    """
    folder = RunFolder(path)
    if not folder.exists():
        runtime = ["--runtime.kind", "local"]
        if trainers > 1:
            runtime = ["--runtime.kind", "ray", "--runtime.trainers", str(trainers)]
        _leap_rl("evaluate", *argv, "--out", str(path), *runtime, *_QUIET)
    elif not folder.latest():
        _leap_rl("resume", str(path))
    return read_evaluation(folder)


def rows_of(path: Path) -> list[dict[str, Any]]:
    """Return the rows of a run's metrics."""
    return read_rows(path / "metrics.jsonl")


def _leap_rl(*argv: str) -> None:
    done = subprocess.run([sys.executable, "-m", "leap_rl", *argv], capture_output=True, text=True)
    if done.returncode:
        last = (done.stderr.strip() or "no message").splitlines()[-1].removeprefix("leap-rl: ")
        if done.returncode == EXIT_REFUSED:
            raise ValueError(last)
        raise RunFailedError(f"leap-rl {argv[0]} ended with status {done.returncode}: {last}")
