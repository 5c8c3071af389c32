"""The paper's fig:ablation:omniglot, at a smaller budget: six configurations of Leap.

    .venv/bin/python -m benchmarks.paper.omniglot_ablation --data ~/omniglot

Whether the loss is in the path, whether with the stabilizer, and which distance is made shorter:
the tasks' training loss over meta-training. The simplest of the six is Reptile. Each repetition
has a split and a seed of its own. Finished cells are kept in
OUT/cells.jsonl: call it again to resume.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.harness import experiment, image_options
from benchmarks.harness.cells import Cell, key_of
from benchmarks.harness.runs import meta_train, rows_of
from benchmarks.harness.tables import write_table
from leap_rl.evaluation.plots import Line, Panel, draw
from leap_rl.evaluation.statistics import mean_interval, shown
from leap_rl.tracking.metrics import by_game

CONFIGURATIONS = [
    {"p": p, "loss_in_path": loss_in_path, "stabilizer": stabilizer}
    for p in (1, 2)
    for loss_in_path, stabilizer in ((True, True), (True, False), (False, False))
]
"""The stabilizer acts on the loss in the path only."""

META_LR = {1: 0.1, 2: 0.05}
"""The authors' 0.1; their code drops the factor p of eq. 8, ours keeps it."""

FINAL_PART = 0.1
"""Fraction of the meta-steps, at the end, over which the table averages."""

FORM = ".3f"
"""Format of the tables' numbers."""

SERIES = {
    "training_loss": ("loss", "total"),
    "training_error": ("error", "training"),
    "validation_error": ("error", "validation"),
}

Found = dict[str, list[Mapping[str, Any]]]
"""Results of all repetitions, by the name of the configuration."""


def run_cell(cell: Cell, *, data: str, out: Path) -> dict[str, Any]:
    """Meta-train in one configuration; returns series over meta-steps."""
    began_s = time.monotonic()
    # Without the meta-steps: more of them continue the same run.
    name = "-".join(str(value) for key, value in cell.items() if key != "meta_steps")
    run = out / "runs" / name
    meta_train(run, training_options(cell, data), meta_steps=cell["meta_steps"])
    rows = rows_of(run)[: cell["meta_steps"]]
    series = {
        name: [fmean(by_game(row, area, stat).values()) for row in rows]
        for name, (area, stat) in SERIES.items()
    }
    return {**series, "trained_s": time.monotonic() - began_s}


def training_options(cell: Cell, data: str) -> dict[str, Any]:
    """Return the options of `leap-rl train` for a cell's configuration."""
    return image_options.training(cell, data) | {
        "meta.p": cell["p"],
        "meta.loss_in_path": cell["loss_in_path"],
        "meta.stabilizer": cell["stabilizer"],
        "meta.optimizer": "sgd",
        "meta.meta_lr": META_LR[cell["p"]],
    }


def cells_of(given: argparse.Namespace) -> list[Cell]:
    """Return the experiment's cells."""
    common = {
        name: getattr(given, name)
        for name in ("pretraining", "meta_steps", "updates", "share", "held_out", "precision")
    }
    return [
        {**configuration, "repeat": repeat, **common}
        for repeat in range(given.repeats)
        for configuration in CONFIGURATIONS
    ]


def name_of(configuration: Mapping[str, Any]) -> str:
    """Return a configuration's name in the paper's legend."""
    loss = int(configuration["loss_in_path"])
    return f"p={configuration['p']} μ={int(configuration['stabilizer'])} f={loss}"


def report(given: argparse.Namespace, results: experiment.Results) -> None:
    """Write the tables and the plot."""
    found: Found = {}
    for cell in cells_of(given):
        found.setdefault(name_of(cell), []).append(results[key_of(cell)])
    lines = {}
    for name, of_one in found.items():
        middle = np.mean([result["training_loss"] for result in of_one], axis=0)
        lines[name] = Line(list(range(len(middle))), middle.tolist())
    files = write_table(table(given, found), given.out / "ablation")
    files += write_table(table_of_differences(given, found), given.out / "ablation_differences")
    files += draw([Panel(lines, "meta-step", "training loss of the tasks")], given.out / "ablation")
    experiment.announce(files)


def table(given: argparse.Namespace, found: Found) -> list[dict[str, Any]]:
    """Return each configuration's metrics at the end."""
    last = last_meta_steps(given)
    return [
        {"configuration": name}
        | {
            f"{series.replace('_', ' ')}, last {last} meta-steps": shown(
                mean_interval(at_the_end(of_one, series, last)), FORM
            )
            for series in SERIES
        }
        for name, of_one in found.items()
    ]


def table_of_differences(given: argparse.Namespace, found: Found) -> list[dict[str, Any]]:
    """Return what stabilizer, loss in the path and length each gain, within repetitions."""
    stabilized, plain, without = CONFIGURATIONS[:3]
    pairs = [
        ({**one, "p": p}, {**other, "p": p})
        for one, other in ((stabilized, plain), (plain, without), (stabilized, without))
        for p in (1, 2)
    ]
    pairs += [({**each, "p": 1}, {**each, "p": 2}) for each in (stabilized, plain, without)]
    last = last_meta_steps(given)
    rows = []
    for one, other in pairs:
        row = {"of": name_of(one), "in place of": name_of(other)}
        for series in SERIES:
            ends = [at_the_end(found[name_of(each)], series, last) for each in (other, one)]
            row[f"less {series.replace('_', ' ')}"] = shown(
                mean_interval(experiment.differences(*ends)), FORM
            )
        rows.append(row)
    return rows


def last_meta_steps(given: argparse.Namespace) -> int:
    """Return the number of meta-steps over which the tables average."""
    meta_steps: int = given.meta_steps
    return max(1, round(FINAL_PART * meta_steps))


def at_the_end(results: Sequence[Mapping[str, Any]], series: str, last: int) -> NDArray[np.float64]:
    """Return a series' mean over the last meta-steps, for each repetition."""
    return np.array([fmean(result[series][-last:]) for result in results])


def options() -> argparse.ArgumentParser:
    """Return the parser of the options."""
    parser = image_options.parser(__doc__, out="runs/omniglot_ablation")
    parser.add_argument(
        "--pretraining", type=experiment.positive, default=5, help="alphabets; the paper's are 20"
    )
    image_options.add_training(parser, published_meta_steps=500)
    return parser


def main() -> int:
    """Run the command."""
    given = options().parse_args()
    work = partial(run_cell, data=given.data, out=given.out)
    return experiment.run(
        given, cells_of=cells_of, work=work, report=report, check=image_options.check_images
    )


if __name__ == "__main__":
    sys.exit(main())
