"""The command of an experiment in cells: the options, and the ends, that all of them have."""

from __future__ import annotations

import argparse
import os
import signal
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from leap_rl.evaluation.cells import Cell, CellFile, compute_cells
from leap_rl.training.errors import RunFailedError

Results = Mapping[str, Mapping[str, Any]]
"""Of finished cells, by :func:`leap_rl.evaluation.cells.key_of` their names."""

EXIT_FAILED: Final = 1
EXIT_USAGE: Final = 2
EXIT_INTERRUPTED: Final = 130


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
        type=int,
        default=len(os.sched_getaffinity(0)),
        help="cells at a time, each on one core",
    )
    return options


def run(
    given: argparse.Namespace,
    *,
    cells_of: Callable[[argparse.Namespace], Sequence[Cell]],
    work: Callable[[Cell], Mapping[str, Any]],
    report: Callable[[argparse.Namespace, Results], None],
) -> int:
    """Compute an experiment's cells and report on them.

    Args:
        given: Parsed options, those of :func:`parser` among them.
        cells_of: Names the cells that the options ask for.
        work: Computes one; a function of a module, as it runs in processes of its own.
        report: Writes tables and figures of the options and all results.

    Returns:
        The exit status: 0; or 2 for bad input, 1 for a training run that failed, 130 when it was
        interrupted or told to terminate, each with one line on stderr.
    """
    file = CellFile(given.out / "cells.jsonl")
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        results = compute_cells(
            cells_of(given),
            work,
            file,
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
        signal.signal(signal.SIGTERM, before)
    return 0
