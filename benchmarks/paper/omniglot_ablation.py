"""The paper's fig:ablation:omniglot, at a budget that fits: six ways to set Leap up.

    .venv/bin/python benchmarks/paper/omniglot_ablation.py --data ~/omniglot

Whether the loss is in the path, whether with the stabilizer, and which distance is made shorter:
the tasks' training loss over meta-training. The simplest of the six is Reptile. Each repetition
has a split and a seed of its own. Finished cells are kept in
OUT/cells.jsonl: call it again to go on.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np

from leap_rl.evaluation import experiment
from leap_rl.evaluation.cells import Cell, key_of
from leap_rl.evaluation.figures import Line, Panel, draw, write_table
from leap_rl.evaluation.runs import mean_over_games, meta_train, rows_of
from leap_rl.evaluation.statistics import mean_interval

CONFIGURATIONS = [
    {"p": p, "loss_in_path": loss_in_path, "stabilizer": stabilizer}
    for p in (1, 2)
    for loss_in_path, stabilizer in ((True, True), (True, False), (False, False))
]
"""Without the loss in the path there is nothing to stabilize."""

META_LR = {1: 0.1, 2: 0.05}
"""The authors' 0.1; their code drops the factor p of eq. 8, ours keeps it."""

FINAL_PART = 0.1
"""The part of the meta-steps, at the end, that the table is of."""

SERIES = {
    "training_loss": ("loss", "total"),
    "training_error": ("error", "training"),
    "validation_error": ("error", "validation"),
}


def run_cell(cell: Cell, *, data: str, out: Path) -> dict[str, Any]:
    """Meta-train in one configuration; returns series over meta-steps."""
    began_s = time.monotonic()
    options = {
        "--seed": cell["repeat"],
        "--meta.p": cell["p"],
        "--meta.loss_in_path": str(cell["loss_in_path"]).lower(),
        "--meta.stabilizer": str(cell["stabilizer"]).lower(),
        "--meta.optimizer": "sgd",
        "--meta.meta_lr": META_LR[cell["p"]],
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
    # Without the meta-steps: more of them go on with the same run.
    name = "-".join(str(value) for key, value in cell.items() if key != "meta_steps")
    run = out / "runs" / name
    argv = [str(word) for pair in options.items() for word in pair]
    meta_train(run, argv, meta_steps=cell["meta_steps"])
    rows = rows_of(run)[: cell["meta_steps"]]
    series = {
        name: [mean_over_games(row, area, stat) for row in rows]
        for name, (area, stat) in SERIES.items()
    }
    return {**series, "trained_s": time.monotonic() - began_s}


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
    """Return a configuration as the paper's legend has it."""
    loss = int(configuration["loss_in_path"])
    return f"p={configuration['p']} μ={int(configuration['stabilizer'])} f={loss}"


def report(given: argparse.Namespace, results: experiment.Results) -> None:
    """Write the table and the figure."""
    rows, lines = [], {}
    for configuration in CONFIGURATIONS:
        of_one = [
            results[key_of(cell)]
            for cell in cells_of(given)
            if all(cell[name] == value for name, value in configuration.items())
        ]
        row: dict[str, Any] = {"configuration": name_of(configuration)}
        last = max(1, round(FINAL_PART * given.meta_steps))
        for name in SERIES:
            end = mean_interval([fmean(result[name][-last:]) for result in of_one])
            spread = f" ({end.low:.3f} to {end.high:.3f})" if end.repeats > 1 else ""
            row[f"{name.replace('_', ' ')}, last {last} meta-steps"] = f"{end.mean:.3f}{spread}"
        rows.append(row)
        middle = np.mean([result["training_loss"] for result in of_one], axis=0)
        lines[name_of(configuration)] = Line(list(range(len(middle))), middle.tolist())
    files = write_table(rows, given.out / "ablation")
    files += draw([Panel(lines, "meta-step", "training loss of the tasks")], given.out / "ablation")
    print((given.out / "ablation.md").read_text(), end="")
    print("\n" + "\n".join(str(file) for file in files))


def options() -> argparse.ArgumentParser:
    """Return the parser of the options."""
    parser = experiment.parser(__doc__, out="runs/omniglot_ablation")
    parser.add_argument("--pretraining", type=int, default=5, help="alphabets; the paper's are 20")
    parser.add_argument("--repeats", type=int, default=3, help="splits, each with a seed")
    parser.add_argument("--meta_steps", type=int, default=100, help="the paper's are 500")
    parser.add_argument("--updates", type=int, default=100, help="of a task")
    parser.add_argument("--held_out", type=int, default=2, help="alphabets")
    parser.add_argument("--share", choices=("all_but_last", "all"), default="all_but_last")
    parser.add_argument("--precision", choices=("float32", "bfloat16"), default="float32")
    return parser


def main() -> int:
    """Run the command."""
    given = options().parse_args()
    work = partial(run_cell, data=given.data, out=given.out)
    return experiment.run(given, cells_of=cells_of, work=work, report=report)


if __name__ == "__main__":
    sys.exit(main())
