"""The paper's fig:jac: the error of the identity as Jacobian of gradient descent.

    .venv/bin/python -m benchmarks.paper.omniglot_jacobian --data ~/omniglot

From a random start, with each learning rate, ρ of the first convolution's block of the Jacobian
after every few updates, on several alphabets. All 576 columns of the block are computed, through
all layers, by as many Hessian-vector products an update. Finished cells are kept in
OUT/cells.jsonl: call it again to resume.
"""

from __future__ import annotations

import argparse
import sys
import time
from functools import partial
from typing import Any

from benchmarks.harness import experiment, image_options
from benchmarks.harness.cells import Cell, key_of
from benchmarks.harness.jacobian import jacobian_blocks, relative_precision
from benchmarks.harness.tables import write_table
from leap_rl.core.seeding import Purpose, derive_seed
from leap_rl.evaluation.plots import Line, Panel, draw
from leap_rl.evaluation.statistics import mean_interval, shown
from leap_rl.learners.classifier.task import OmniglotTask
from leap_rl.learners.config import AgentConfig, ClassifierConfig
from leap_rl.learners.registry import make_learner
from leap_rl.learners.task import TaskSpec
from leap_rl.tasks.config import TaskConfig
from leap_rl.tasks.images.config import OmniglotConfig

FIRST_LAYER = "encoder.conv1.weight"


def run_cell(cell: Cell, *, data: str) -> dict[str, Any]:
    """Follow the Jacobian of one task; returns ρ by update."""
    began_s = time.monotonic()
    omniglot = OmniglotConfig(updates=cell["updates"])
    task_config = TaskConfig(
        kind="omniglot", games=[cell["alphabet"]], data=data, omniglot=omniglot
    )
    config = task_config.suite.resolve(task_config)
    agent = AgentConfig(classifier=ClassifierConfig(lr=cell["lr"]))
    tasks = make_learner(task=config, agent=agent)
    seed = derive_seed(cell["seed"], Purpose.TASK, cell["alphabet"])
    task = tasks(TaskSpec(game=cell["alphabet"], seed=seed))
    assert isinstance(task, OmniglotTask)
    # The same random start with every rate.
    task.start(tasks.random_initialization(derive_seed(seed, Purpose.INITIALIZATION)))
    (leaf,) = (leaf for leaf in task.learner.flat.layout.leaves if leaf.name == FIRST_LAYER)
    columns = range(leaf.offset, leaf.stop)[: cell["columns"]]
    blocks = jacobian_blocks(
        task.learner.loss_at,
        task.learner.parameters.clone(),
        batches=[task.batch(update) for update in range(cell["updates"])],
        lr=cell["lr"],
        block=columns,
        block_alone=cell["through"] == "layer",
    )
    precision = {
        str(update): relative_precision(block)
        for update, block in enumerate(blocks, start=1)
        if update % cell["every"] == 0
    }
    return {"precision": precision, "took_s": time.monotonic() - began_s}


def cells_of(given: argparse.Namespace) -> list[Cell]:
    """Return the experiment's cells.

    Raises:
        ValueError: No update would be looked at; or there are no images.
    """
    if given.every > given.updates:
        raise ValueError(f"--every {given.every}: looks at none of {given.updates} updates")
    every_one = TaskConfig(kind="omniglot", games="all", data=given.data)
    alphabets = every_one.suite.resolve(every_one)
    common = {
        name: getattr(given, name) for name in ("updates", "every", "columns", "through", "seed")
    }
    return [
        {"lr": lr, "alphabet": alphabet, **common}
        for alphabet in alphabets.resolved_games[: given.alphabets]
        for lr in given.lr
    ]


def report(given: argparse.Namespace, results: experiment.Results) -> None:
    """Write the table and the plot."""
    rows, lines = [], {}
    for lr in given.lr:
        of_one = [results[key_of(cell)] for cell in cells_of(given) if cell["lr"] == lr]
        updates = [int(update) for update in of_one[0]["precision"]]
        found = [
            mean_interval([result["precision"][str(update)] for result in of_one])
            for update in updates
        ]
        for update, mean in zip(updates, found, strict=True):
            row = {"learning rate": lr, "updates": update, "ρ": shown(mean, ".2e")}
            rows.append(row)
        lines[f"α = {lr}"] = Line(updates, [mean.value for mean in found])
    files = write_table(rows, given.out / "jacobian")
    panel = Panel(lines, "updates", "ρ of the first convolution", log_y=True)
    files += draw([panel], given.out / "jacobian")
    experiment.announce(files)


def options() -> argparse.ArgumentParser:
    """Return the parser of the options."""
    parser = image_options.parser(__doc__, out="runs/omniglot_jacobian")
    parser.add_argument("--lr", nargs="+", type=float, default=[0.01, 0.1, 0.5])
    parser.add_argument("--alphabets", type=experiment.positive, default=5)
    parser.add_argument("--updates", type=experiment.positive, default=20)
    parser.add_argument(
        "--every", type=experiment.positive, default=5, help="updates between two looks"
    )
    parser.add_argument(
        "--columns", type=experiment.positive, default=576, help="of the block; fewer to try it out"
    )
    parser.add_argument(
        "--through",
        choices=("network", "layer"),
        default="network",
        help="layer leaves out what goes through other layers' updates",
    )
    parser.add_argument("--seed", type=int, default=0)
    return parser


def main() -> int:
    """Run the command."""
    given = options().parse_args()
    given.lr = sorted(set(given.lr))
    work = partial(run_cell, data=given.data)
    return experiment.run(
        given, cells_of=cells_of, work=work, report=report, check=image_options.check_images
    )


if __name__ == "__main__":
    sys.exit(main())
