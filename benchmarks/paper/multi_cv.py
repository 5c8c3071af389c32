"""The paper's tab:multi-cv on the data sets that are there, at a budget that fits.

    .venv/bin/python -m benchmarks.paper.multi_cv --data ~/sets

Each set of --held_out is held out in turn. A method meta-trains on the others: Leap and Reptile in
meta-steps of all of them, by each outer optimizer; the others one set after another, each drawn at
random, as many in all. Then the held-out set is learned. Measured are the error on test images, the
training error at the end and the area under the training-error curve. Finished cells are kept in
OUT/cells.jsonl: call it again to resume.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping, Sequence
from functools import partial
from hashlib import sha256
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np

from benchmarks.harness import experiment, image_options
from benchmarks.harness.cells import Cell, key_of
from benchmarks.harness.curves import learn
from benchmarks.harness.runs import meta_train
from benchmarks.harness.tables import write_table
from leap_rl.core.parsing import parse_options
from leap_rl.core.seeding import Purpose, derive_seed
from leap_rl.evaluation.statistics import mean_interval, shown
from leap_rl.learners.registry import make_learner
from leap_rl.learners.task import TaskSpec
from leap_rl.runs.config import LearnConfig
from leap_rl.sharing.initialization import read_initialization
from leap_rl.tasks.images.sets import read_folder

METHODS = ("leap", "reptile", "finetune", "progressive", "hat", "none")

AT_ONCE = ("leap", "reptile")
"""Learn from all sets in a meta-step; the others, from one set after another."""

META_LR = {"adam": {"leap": 0.01, "reptile": 0.01}, "sgd": {"leap": 0.05, "reptile": 1.0}}
"""The paper's, which gives none for Reptile; and the released code's for Leap (0.1 without the
factor p), the full step to the mean of the agents for Reptile."""

LEARNERS = {
    "hat": "benchmarks.paper.learners.hat:HAT",
    "progressive": "benchmarks.paper.learners.progressive:ProgressiveNets",
}

PUBLISHED = {
    "mnist": dict(zip(METHODS, ("0.7 / 0.1 / 0.6", "", "0.9 / 0.1 / 0.8", "0.8 / 0.0 / 0.7",
                                "0.8 / 0.3 / 1.2", "0.9 / 0.2 / 1.0"), strict=True)),
    "fashion": dict(zip(METHODS, ("8.0 / 4.2 / 6.8", "", "8.9 / 3.8 / 7.0", "8.7 / 5.4 / 9.2",
                                  "9.5 / 5.5 / 8.1", "8.4 / 4.7 / 7.8"), strict=True)),
}  # fmt: skip
"""The paper's tab:multi-cv:full, percent: seven other sets, 1,000 meta-steps, 100 epochs."""

MEASURES = {"test error, %": "test_error", "training error, %": "training_error", "area, %": "area"}

FINAL_UPDATES = 20
"""At a task's end, over which the training error is averaged."""


def run_cell(cell: Cell, *, data: str, out: Path) -> dict[str, Any]:
    """Meta-train, then learn the held-out set; returns plain values."""
    options = common_options(cell, data)
    options |= {"task.games": [cell["held_out"]], "task.images.epochs": cell["evaluation_epochs"]}
    config = parse_options(LearnConfig, options, trusts_imports=True)
    tasks = make_learner(task=config.task.suite.resolve(config.task), agent=config.agent)
    seed = derive_seed(cell["repeat"], Purpose.TASK, "evaluation", cell["held_out"])
    theta0 = tasks.random_initialization(derive_seed(seed, Purpose.INITIALIZATION))
    if cell["method"] != "none":
        training = training_options(cell, data)
        # By what trains it, the meta-steps left out: more of them continue the same run.
        digest = sha256(key_of({**training, "task.data": ""}).encode()).hexdigest()[:8]
        names = (cell["method"], cell["held_out"], str(cell["repeat"]), digest)
        folder = out / "runs" / "-".join(names)
        run = meta_train(folder, training, meta_steps=meta_steps(cell), trusts_imports=True)
        theta0, _ = read_initialization(str(run), tasks.shared_layout())
    curve = learn(tasks, TaskSpec(game=cell["held_out"], seed=seed), theta0)
    return {
        "test_error": curve.final_test_error,
        "training_error": fmean(curve.training_errors[-FINAL_UPDATES:]),
        "area": curve.area,
    }


def meta_steps(cell: Cell) -> int:
    """Return the outer steps of a method: as many tasks for each."""
    return int(cell["meta_steps"]) * (1 if cell["method"] in AT_ONCE else len(cell["sets"]) - 1)


def common_options(cell: Cell, data: str) -> dict[str, Any]:
    """Return the options of tasks and agents, by name."""
    options = {
        "seed": cell["repeat"],
        "task.kind": "images",
        "task.data": data,
        "task.images.limit": cell["limit"],
    }
    if cell["method"] in LEARNERS:
        options["agent.algorithm"] = LEARNERS[cell["method"]]
        options["agent.options"] = {"sets": list(cell["sets"])}
    return options


def training_options(cell: Cell, data: str) -> dict[str, Any]:
    """Return the options of `leap-rl train` for a cell's method."""
    games = [name for name in cell["sets"] if name != cell["held_out"]]
    options = common_options(cell, data) | {
        "task.games": games,
        "task.images.epochs": cell["epochs"],
        "task.images.patience": cell["patience"],
        "task.images.test": False,
    }
    if cell["method"] not in AT_ONCE:
        return options | {"meta.method": "pretraining", "meta.batch_size": 1}
    return options | {
        "meta.method": cell["method"],
        "meta.batch_size": len(games),
        "meta.optimizer": cell["optimizer"],
        "meta.meta_lr": META_LR[cell["optimizer"]][cell["method"]],
    }


def cells_of(given: argparse.Namespace) -> list[Cell]:
    """Return the experiment's cells; ValueError if a set is held out that is none."""
    sizes = ("meta_steps", "epochs", "evaluation_epochs", "limit", "patience")
    common = {name: getattr(given, name) for name in sizes}
    sets = given.sets or list(read_folder(given.data).names)
    common["sets"] = sets
    if strange := {*given.held_out} - {*sets}:
        raise ValueError(f"--held_out {' '.join(sorted(strange))}: not among the sets {sets}")
    return [
        {
            "method": method,
            "held_out": held_out,
            "repeat": repeat,
            "optimizer": optimizer,
            **common,
        }
        for repeat in range(given.repeats)
        for held_out in dict.fromkeys(given.held_out)
        for method in dict.fromkeys(given.methods)
        for optimizer in (dict.fromkeys(given.optimizers) if method in AT_ONCE else [None])
    ]


def report(given: argparse.Namespace, results: experiment.Results) -> None:
    """Write the table, and that of differences from no pretraining, within repeats."""
    found: dict[tuple[str, ...], list[Mapping[str, Any]]] = {}
    for cell in cells_of(given):
        row_of = cell["held_out"], cell["method"], cell["optimizer"] or ""
        found.setdefault(row_of, []).append(results[key_of(cell)])
    rows, differences = [], []
    for (held_out, method, optimizer), of_one in found.items():
        row = {"held out": held_out, "method": method, "outer": optimizer}
        published = {
            "published (other budget and sets)": PUBLISHED.get(held_out, {}).get(method, "")
        }
        rows.append(row | measured(of_one) | published)
        if method != "none" and (without := found.get((held_out, "none", ""))):
            differences.append(row | measured(of_one, without))
    files = write_table(rows, given.out / "multi_cv")
    if differences:
        files += write_table(differences, given.out / "multi_cv_differences")
    experiment.announce(files)


def measured(
    results: Sequence[Mapping[str, Any]], less: Sequence[Mapping[str, Any]] = ()
) -> dict[str, str]:
    """Return means over repeats with their intervals, by column; less those of other cells."""
    columns = {}
    for column, measure in MEASURES.items():
        values = np.array([one[measure] for one in results])
        values -= [one[measure] for one in less] if less else 0.0
        columns[column] = shown(mean_interval(values), ".2f" if less else ".1f", scale=100.0)
    return columns


def options() -> argparse.ArgumentParser:
    """Return the parser of the options."""
    parser, positive = image_options.parser(__doc__, out="runs/multi_cv"), experiment.positive
    parser.add_argument("--methods", nargs="+", choices=METHODS, default=list(METHODS))
    parser.add_argument("--sets", nargs="+", help="all, held-out ones too; default: all there are")
    parser.add_argument("--held_out", nargs="+", default=["fashion", "mnist"])
    parser.add_argument("--repeats", type=positive, default=3)
    parser.add_argument(
        "--optimizers", nargs="+", choices=META_LR, default=list(META_LR), help="the outer ones"
    )
    parser.add_argument("--meta_steps", type=positive, default=20, help="the paper's are 1000")
    parser.add_argument("--epochs", type=float, default=1.0, help="of a task in meta-training")
    parser.add_argument("--evaluation_epochs", type=float, default=10.0, help="the paper's are 100")
    parser.add_argument("--limit", type=positive, default=5000, help="images of a set")
    parser.add_argument("--patience", type=positive, help="updates; the paper's are 10")
    return parser


def main() -> int:
    """Run the command."""
    given = options().parse_args()
    work = partial(run_cell, data=given.data, out=given.out)
    check = partial(image_options.check_images, read=read_folder)
    return experiment.run(given, cells_of=cells_of, work=work, report=report, check=check)


if __name__ == "__main__":
    sys.exit(main())
