"""Meta-train as a protocol says, and evaluate the initializations.

    .venv/bin/python -m benchmarks.meta_training benchmarks/protocols/single_game.yaml

Meta-trains each variant of a protocol on each of its pools of games, with each of its seeds, and
shows the mean return over a task's whole budget by meta-step, that is, while an agent learns.
If the protocol has an evaluation, new agents then learn from the meta-trained and from random
encoders, and `leap-rl evaluate` compares them. A table has the cosines between the contributions of
two tasks, over pairs of games and over modes of one game. A protocol is a YAML file
with

    question:   the question, in a sentence
    train:      options of `leap-rl train` that all cells share, nested as in a config
    pools:      games by the name of their pool
    variants:   by name, the options, dotted, in which each differs
    overrides:  by pool, the options, dotted, in which all of its variants differ (may be left out)
    seeds:      a list; each is a meta-training run
    evaluation: (may be left out) agents: of each run in each game; agent_steps: of each, the tasks'
                own unless given; games: by pool, the pool's own unless given; own_start: whether
                to compare with the runs' own random starts too

Finished cells are kept in OUT/cells.jsonl: call it again to resume, also after the protocol has
grown. With --report it shows the finished cells and computes nothing. A cell is identified by its
options, so that a changed one is computed again.
"""

from __future__ import annotations

import argparse
import sys
from functools import partial
from pathlib import Path

from benchmarks.harness import experiment
from benchmarks.harness.cells import CellFile, key_of
from benchmarks.harness.protocol import (
    all_cells,
    evaluation_cells,
    read_protocol,
    training_cells,
)
from benchmarks.harness.protocol_report import write_report
from benchmarks.harness.protocol_runs import run_cell


def report(given: argparse.Namespace, results: experiment.Results) -> None:
    """Write and print the tables and plots of the finished cells."""
    protocol = read_protocol(given.protocol)
    experiment.announce(write_report(protocol, results, given.out / given.protocol.stem))


def options() -> argparse.ArgumentParser:
    """Return the parser of the options."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("protocol", type=Path, help="a YAML file, see above")
    parser.add_argument("--out", type=Path, help="folder of cells, tables and plots: runs/PROTOCOL")
    experiment.add_processes(parser)
    parser.add_argument(
        "--report", action="store_true", help="show the finished cells, and compute nothing"
    )
    return parser


def show(given: argparse.Namespace) -> int:
    """Report on the finished cells; returns the exit status."""
    try:
        results = CellFile(given.out / "cells.jsonl").read()
        cells = all_cells(read_protocol(given.protocol))
    except ValueError as error:
        print(f"meta_training.py: {error}", file=sys.stderr)
        return experiment.EXIT_USAGE
    finished = sum(key_of(cell) in results for cell in cells)
    print(f"{finished} of {len(cells)} cells are done")
    if finished:
        report(given, results)
    return 0


def main() -> int:
    """Run the command."""
    given = options().parse_args()
    given.out = given.out or Path("runs") / given.protocol.stem
    if given.report:
        return show(given)
    status = experiment.run(
        given,
        cells_of=lambda given: training_cells(read_protocol(given.protocol)),
        work=partial(run_cell, out=given.out),
        report=lambda *_: None,
    )
    if status:
        return status
    # All evaluations run at the same time and share the cores among their trainers.
    evaluations = max(1, len(evaluation_cells(read_protocol(given.protocol))))
    trainers = max(1, given.processes // evaluations)
    given.processes = min(given.processes, evaluations)
    return experiment.run(
        given,
        cells_of=lambda given: all_cells(read_protocol(given.protocol)),
        work=partial(run_cell, out=given.out, trainers=trainers),
        report=report,
    )


if __name__ == "__main__":
    sys.exit(main())
