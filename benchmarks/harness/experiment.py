"""The command of an experiment in cells: the options, and the ends, that all of them have."""

from __future__ import annotations

import argparse
import math
import os
import signal
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from benchmarks.harness.cells import Cell, CellFile, compute_cells
from leap_rl.evaluation.statistics import Estimate, FloatArray
from leap_rl.tasks.omniglot.data import read_omniglot
from leap_rl.training.errors import RunFailedError

Results = Mapping[str, Mapping[str, Any]]
"""Of finished cells, by :func:`benchmarks.harness.cells.key_of` their names."""

EXIT_FAILED: Final = 1
EXIT_USAGE: Final = 2
EXIT_INTERRUPTED: Final = 130

STOPS: Final = (signal.SIGINT, signal.SIGTERM)


def parser(description: str | None, *, out: str) -> argparse.ArgumentParser:
    """Return a parser with the options of every experiment on Omniglot.

    Args:
        description: The script's docstring.
        out: The default of the folder for cells, tables and figures.
    """
    options = argparse.ArgumentParser(
        description=description, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    options.add_argument("--data", required=True, help="Omniglot, as task.data")
    options.add_argument("--out", type=Path, default=Path(out), help="folder of what comes out")
    options.add_argument(
        "--processes",
        type=positive,
        default=len(os.sched_getaffinity(0)),
        help="cells at a time, each on one core",
    )
    return options


def add_training(options: argparse.ArgumentParser, *, published_meta_steps: int) -> None:
    """Add the options of experiments that meta-train, all but the number of alphabets."""
    paper = f"the paper's are {published_meta_steps}"
    options.add_argument("--repeats", type=positive, default=3, help="splits, each with a seed")
    options.add_argument("--meta_steps", type=positive, default=100, help=paper)
    options.add_argument("--updates", type=positive, default=100, help="of a task")
    options.add_argument("--held_out", type=positive, default=2, help="alphabets")
    options.add_argument("--share", choices=("all_but_last", "all"), default="all_but_last")
    options.add_argument("--precision", choices=("float32", "bfloat16"), default="float32")


def training(cell: Cell, data: str) -> dict[str, Any]:
    """Return the options of `leap-rl train`, by name, that a cell of such an experiment means."""
    return {
        "--seed": cell["repeat"],
        "--meta.batch_size": cell["pretraining"],
        "--task.kind": "omniglot",
        "--task.data": data,
        "--task.omniglot.updates": cell["updates"],
        "--task.omniglot.share": cell["share"],
        "--task.omniglot.precision": cell["precision"],
        "--task.omniglot.split": cell["repeat"],
        "--task.omniglot.held_out": cell["held_out"],
        "--task.omniglot.pretraining": cell["pretraining"],
    }


def words(options: Mapping[str, Any]) -> list[str]:
    """Return options by name as words of a command line."""
    return [str(word) for pair in options.items() for word in pair]


def positive(text: str) -> int:
    """Return a whole number from 1, as an option's type.

    Raises:
        argparse.ArgumentTypeError: It is none.
    """
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is no whole number from 1")
    return int(text)


def run(
    given: argparse.Namespace,
    *,
    cells_of: Callable[[argparse.Namespace], Sequence[Cell]],
    work: Callable[[Cell], Mapping[str, Any]],
    report: Callable[[argparse.Namespace, Results], None],
    check: Callable[[argparse.Namespace], None] = lambda _: None,
) -> int:
    """Compute an experiment's cells and report on them.

    Args:
        given: Parsed options, those of :func:`parser` among them.
        cells_of: Names the cells that the options ask for.
        work: Computes one; a function of a module, as it runs in processes of its own.
        report: Writes tables and figures of the options and all results.
        check: Refuses, by a ValueError, options that finished cells are not of.

    Returns:
        The exit status: 0; or 2 for bad input, 1 for a training run that failed, 130 when it was
        interrupted or told to terminate, each with one line on stderr.
    """
    # SIGINT too: a shell's background jobs are started with it ignored.
    before = {stop: signal.signal(stop, signal.default_int_handler) for stop in STOPS}
    try:
        check(given)
        results = compute_cells(
            cells_of(given),
            work,
            CellFile(given.out / "cells.jsonl"),
            processes=given.processes,
            progress=lambda line: print(line, flush=True),
        )
        report(given, results)
    except KeyboardInterrupt:
        print(f"stopped; {given.out} keeps what is done: the same command goes on", file=sys.stderr)
        return EXIT_INTERRUPTED
    except (ValueError, RunFailedError, OSError) as error:
        print(f"{Path(sys.argv[0]).name}: {' '.join(str(error).split())}", file=sys.stderr)
        return EXIT_USAGE if isinstance(error, ValueError) else EXIT_FAILED
    finally:
        for stop, handler in before.items():
            signal.signal(stop, handler)
    return 0


def shown(mean: Estimate, form: str, *, scale: float = 1.0) -> str:
    """Return a mean and, where it is of several repetitions, its interval.

    Args:
        mean: What to show.
        form: Of each number, as :func:`format` takes it.
        scale: What each is multiplied by, 100 for percent.
    """
    middle, low, high = (format(scale * each, form) for each in mean)
    return middle if math.isinf(mean.low) else f"{middle} ({low} to {high})"


def announce(files: Sequence[Path]) -> None:
    """Print the tables among the files, and where all of them are."""
    for file in files:
        if file.suffix == ".md":
            print(file.read_text())
    print("\n".join(str(file) for file in files))


def check_images(given: argparse.Namespace) -> None:
    """Refuse other images than those that finished cells are of; none at all will do for them.

    Raises:
        ValueError: There are others.
    """
    data, out = given.data, given.out
    if not Path(data).expanduser().exists():
        return  # a cell that is missing says so
    found, kept = read_omniglot(data).sha256, out / "images.sha256"
    if not kept.exists():
        out.mkdir(parents=True, exist_ok=True)
        kept.write_text(f"{found}\n")
    elif kept.read_text().strip() != found:
        raise ValueError(
            f"--data {data}: holds other images (SHA-256 {found}) than those that {out} is made "
            f"of ({kept.read_text().strip()}); name those, or another folder by --out"
        )


def differences(ours: FloatArray, theirs: FloatArray) -> list[float]:
    """Return the differences of repetitions, [n] each."""
    return [one - other for one, other in zip(ours, theirs, strict=True)]
