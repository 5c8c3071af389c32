"""The command of an experiment in cells: the options, and the ends, that all of them have."""

from __future__ import annotations

import argparse
import signal
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from benchmarks.harness.cells import Cell, CellFile, compute_cells
from leap_rl.core.errors import RunFailedError
from leap_rl.core.machine import cores
from leap_rl.evaluation.statistics import FloatArray

Results = Mapping[str, Mapping[str, Any]]
"""Of finished cells, by `benchmarks.harness.cells.key_of` their names."""

EXIT_FAILED: Final = 1
EXIT_USAGE: Final = 2
EXIT_INTERRUPTED: Final = 130

STOPS: Final = (signal.SIGINT, signal.SIGTERM)


def add_processes(options: argparse.ArgumentParser) -> None:
    """Add the option of how many cells are computed at a time."""
    options.add_argument(
        "--processes",
        type=positive,
        default=cores(),
        help="cells at a time, each on one core",
    )


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
        given: Parsed options, `out` and `processes` among them.
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
        print(
            f"stopped; {given.out} keeps what is done: the same command continues", file=sys.stderr
        )
        return EXIT_INTERRUPTED
    except (ValueError, RunFailedError, OSError) as error:
        print(f"{Path(sys.argv[0]).name}: {' '.join(str(error).split())}", file=sys.stderr)
        return EXIT_USAGE if isinstance(error, ValueError) else EXIT_FAILED
    finally:
        for stop, handler in before.items():
            signal.signal(stop, handler)
    return 0


def announce(files: Sequence[Path]) -> None:
    """Print the tables among the files, and where all of them are."""
    for file in files:
        if file.suffix == ".md":
            print(file.read_text())
    print("\n".join(str(file) for file in files))


def differences(ours: FloatArray, theirs: FloatArray) -> list[float]:
    """Return the differences of repetitions, [n] each."""
    return [one - other for one, other in zip(ours, theirs, strict=True)]
