"""The paper's tab:omniglot:scores and fig:omniglot, at a budget that fits.

    .venv/bin/python -m benchmarks.paper.omniglot_scores --data ~/omniglot

Each repetition has a split of its own (which alphabets are held out, their characters and drawers)
and a seed of its own, as in the paper. A method meta-trains on some alphabets, one task each in a
batch; then each held-out alphabet is learned from the initialization several times, and from
random starts. Measured are the area under the training-error curve and the validation error at its
end. Finished cells are kept in OUT/cells.jsonl: call it again to resume.
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
from benchmarks.harness.curves import Curve, learn, moving_average
from benchmarks.harness.runs import meta_train
from benchmarks.harness.tables import write_table
from leap_rl.core.seeding import Purpose, derive_seed
from leap_rl.evaluation.plots import Line, Panel, draw
from leap_rl.evaluation.statistics import IntervalEstimate, mean_interval, shown
from leap_rl.learners.config import AgentConfig, ClassifierConfig
from leap_rl.learners.registry import make_learner
from leap_rl.learners.task import TaskSpec
from leap_rl.sharing.initialization import read_initialization
from leap_rl.tasks.config import TaskConfig
from leap_rl.tasks.images.config import OmniglotConfig

METHODS = ("leap", "reptile", "finetune", "maml", "fomaml", "none")
"""`none` learns from random starts."""

META_LR = {"leap": 0.1, "reptile": 0.1, "maml": 0.5, "fomaml": 0.5}
"""Rates of SGD, from the appendix. Pretraining (`finetune`) averages encoders without a rate."""

MAML_UPDATES = 5
"""Updates of a task in meta-training by MAML (section 4.1)."""

UPDATES_PER_ROUND = 10
"""Of pretraining (`finetune`), whose outer step is the mean of the encoders. It gets as many rounds
as give each alphabet the updates of the other methods, MAML aside."""

PUBLISHED = {
    count: dict(zip(METHODS, errors, strict=True))
    for count, errors in {
        1: (62.3, 59.8, 46.5, 64.0, 64.5, 82.3),
        3: (46.5, 46.5, 36.0, 56.2, 59.0, 82.3),
        5: (40.3, 41.4, 32.5, 50.1, 53.0, 82.5),
        10: (32.6, 35.6, 28.7, 49.3, 49.6, 82.9),
        15: (29.6, 33.3, 26.9, 45.5, 47.8, 82.6),
        20: (26.0, 30.8, 24.7, 41.7, 45.4, 82.6),
        25: (24.8, 29.4, 23.5, 42.9, 44.0, 82.8),
    }.items()
}
"""The paper's tab:omniglot:scores: 1,000 meta-steps of 20 tasks, 10 held-out alphabets, percent."""


Found = Mapping[tuple[int, str], list[Mapping[str, Any]]]
"""Results of all repetitions, by the number of pretraining alphabets and the method."""


def run_cell(cell: Cell, *, data: str, out: Path) -> dict[str, Any]:
    """Meta-train, then learn the held-out alphabets; returns plain values."""
    began_s = time.monotonic()
    task = _task(cell, data)
    classifier = ClassifierConfig(share=cell["share"], precision=cell["precision"])
    tasks = make_learner(task=task, agent=AgentConfig(classifier=classifier))
    theta0 = None
    if cell["method"] != "none":
        # Without the meta-steps: more of them continue the same run.
        left_out = ("learners", "meta_steps")
        name = "-".join(str(value) for key, value in cell.items() if key not in left_out)
        options = training_options(cell, data)
        run = meta_train(out / "runs" / name, options, meta_steps=rounds(cell))
        theta0, _ = read_initialization(str(run), tasks.shared_layout())
    trained_s = time.monotonic() - began_s
    tasks.check_machine()
    curves: dict[str, list[Curve]] = {}
    for alphabet in task.resolved_games:
        curves[alphabet] = []
        for learner in range(cell["learners"]):
            seed = derive_seed(cell["repeat"], Purpose.TASK, "evaluation", alphabet, learner)
            random = tasks.random_initialization(derive_seed(seed, Purpose.INITIALIZATION))
            start = random if theta0 is None else theta0
            curves[alphabet].append(learn(tasks, TaskSpec(game=alphabet, seed=seed), start))
    every = [curve for of_one in curves.values() for curve in of_one]
    return {
        "alphabets": {
            name: {
                "area": [curve.area for curve in of_one],
                "validation_error": [curve.final_validation_error for curve in of_one],
            }
            for name, of_one in curves.items()
        },
        "training_errors": np.mean([curve.training_errors for curve in every], axis=0).tolist(),
        "trained_s": trained_s,
        "evaluated_s": time.monotonic() - began_s - trained_s,
    }


def rounds(cell: Cell) -> int:
    """Return the number of outer steps of a cell's method."""
    if cell["method"] != "finetune":
        return int(cell["meta_steps"])
    return -(-int(cell["meta_steps"]) * int(cell["updates"]) // _updates_per_round(cell))


def _updates_per_round(cell: Cell) -> int:
    return min(UPDATES_PER_ROUND, int(cell["updates"]))


def _task(cell: Cell, data: str) -> TaskConfig:
    """Return the held-out alphabets of a cell's split, each with the budget of evaluation."""
    omniglot = OmniglotConfig(
        updates=cell["updates"],
        split=cell["repeat"],
        held_out=cell["held_out"],
    )
    task = TaskConfig(kind="omniglot", games="held_out", data=data, omniglot=omniglot)
    return task.suite.resolve(task)


def training_options(cell: Cell, data: str) -> dict[str, Any]:
    """Return the options of `leap-rl train` for a cell's method."""
    method = cell["method"]
    options = image_options.training(cell, data) | {
        "meta.method": "pretraining" if method == "finetune" else method
    }
    if method == "maml":
        options["task.omniglot.updates"] = MAML_UPDATES
    if method == "finetune":
        options["meta.updates_per_round"] = _updates_per_round(cell)
    else:
        options |= {"meta.optimizer": "sgd", "meta.meta_lr": cell["meta_lr"]}
    if method == "leap":
        options["meta.p"] = 1
    return options


def cells_of(given: argparse.Namespace) -> list[Cell]:
    """Return the experiment's cells, the short ones last so that no core waits long."""
    common = {
        name: getattr(given, name)
        for name in ("meta_steps", "updates", "share", "held_out", "learners", "precision")
    }
    cells: list[Cell] = []
    for repeat in range(given.repeats):
        for pretraining in reversed(given.pretraining):
            cells += [
                {
                    "method": method,
                    "pretraining": pretraining,
                    "repeat": repeat,
                    "meta_lr": META_LR.get(method),
                    **common,
                }
                for method in given.methods
                if method != "none"
            ]
        if "none" in given.methods:
            cells.append(
                {"method": "none", "pretraining": 0, "repeat": repeat, "meta_lr": None, **common}
            )
    return cells


def by_repetition(results: Sequence[Mapping[str, Any]], measure: str) -> NDArray[np.float64]:
    """Return a measure for each repetition, the mean over its alphabets and learners."""
    return np.array(
        [
            fmean(value for of_one in result["alphabets"].values() for value in of_one[measure])
            for result in results
        ]
    )


def means(results: Sequence[Mapping[str, Any]], measure: str) -> IntervalEstimate:
    """Return a measure's mean over repetitions."""
    return mean_interval(by_repetition(results, measure))


def report(given: argparse.Namespace, results: experiment.Results) -> None:
    """Write tables and plots."""
    found: dict[tuple[int, str], list[Mapping[str, Any]]] = {}
    for cell in cells_of(given):
        found.setdefault((cell["pretraining"], cell["method"]), []).append(results[key_of(cell)])
    files = write_table(table(given, found), given.out / "scores")
    differences = table_of_differences(given, found)
    if differences:
        files += write_table(differences, given.out / "scores_differences")
    files += draw(panels(given, found), given.out / "scores")
    experiment.announce(files)


def results_of(found: Found, method: str, pretraining: int) -> list[Mapping[str, Any]]:
    """Return a method's results; random starts' are the same whatever the pretraining."""
    return found[0 if method == "none" else pretraining, method]


def table(given: argparse.Namespace, found: Found) -> list[dict[str, Any]]:
    """Return the rows of tab:omniglot:scores."""
    published = "published validation error, % (other budget)"
    rows = []
    for pretraining in given.pretraining:
        for method in given.methods:
            of_method = results_of(found, method, pretraining)
            rows.append(
                {
                    "pretraining alphabets": pretraining,
                    "method": method,
                    "validation error, %": percent(means(of_method, "validation_error")),
                    "area under training error, %": percent(means(of_method, "area")),
                    **gains(of_method, found.get((0, "none"))),
                    published: PUBLISHED.get(pretraining, {}).get(method, ""),
                }
            )
    return rows


def table_of_differences(given: argparse.Namespace, found: Found) -> list[dict[str, Any]]:
    """Return differences within repetitions: Leap less others, and most less fewest alphabets."""
    methods = [method for method in given.methods if method != "none"]
    fewest, most = given.pretraining[0], given.pretraining[-1]
    pairs = [
        (("leap", count), (other, count))
        for count in given.pretraining
        for other in methods
        if "leap" in methods and other != "leap"
    ]
    pairs += [((method, most), (method, fewest)) for method in methods if most > fewest]
    rows = []
    for one, other in pairs:
        ours, theirs = results_of(found, *one), results_of(found, *other)
        rows.append({"of": name_of(*one), "in place of": name_of(*other), **gains(ours, theirs)})
    return rows


def name_of(method: str, pretraining: int) -> str:
    """Return the name of a method with a number of alphabets."""
    return f"{method}, {pretraining} alphabet{'s' if pretraining > 1 else ''}"


def panels(given: argparse.Namespace, found: Found) -> list[Panel]:
    """Return fig:omniglot: the curves with most alphabets, and their areas with each number."""
    counts = given.pretraining
    curves, areas = {}, {}
    for method in given.methods:
        of_method = results_of(found, method, counts[-1])
        smoothed = [moving_average(result["training_errors"], 5) for result in of_method]
        middle = np.mean(smoothed, axis=0)
        curves[method] = Line(list(range(1, len(middle) + 1)), middle.tolist())
        by_count = [means(results_of(found, method, count), "area") for count in counts]
        several = given.repeats > 1
        areas[method] = Line(
            counts,
            [each.value for each in by_count],
            low=[each.low for each in by_count] if several else None,
            high=[each.high for each in by_count] if several else None,
        )
    return [
        Panel(curves, f"update, {counts[-1]} pretraining alphabets", "training error, mean of 5"),
        Panel(areas, "pretraining alphabets", "area under training error"),
    ]


def gains(
    ours: Sequence[Mapping[str, Any]], others: Sequence[Mapping[str, Any]] | None
) -> dict[str, str]:
    """Return by how much both measures are less than others', in percentage points.

    The difference is taken within each repetition, whose alphabets and learners are the same.
    """
    columns = {"less error": "validation_error", "less area": "area"}
    if others is None:
        return {}
    if ours is others:
        return dict.fromkeys(columns, "")
    return {
        column: percent(
            mean_interval(
                experiment.differences(by_repetition(others, measure), by_repetition(ours, measure))
            )
        )
        for column, measure in columns.items()
    }


def percent(mean: IntervalEstimate) -> str:
    """Return a mean and its interval in percent."""
    return shown(mean, ".1f", scale=100.0)


def options() -> argparse.ArgumentParser:
    """Return the parser of the options."""
    parser = image_options.parser(__doc__, out="runs/omniglot_scores")
    parser.add_argument("--methods", nargs="+", choices=METHODS, default=list(METHODS))
    parser.add_argument("--pretraining", nargs="+", type=experiment.positive, default=[1, 3, 5])
    parser.add_argument(
        "--learners", type=experiment.positive, default=3, help="for each held-out alphabet"
    )
    image_options.add_training(parser, published_meta_steps=1000)
    return parser


def main() -> int:
    """Run the command."""
    given = options().parse_args()
    given.methods = list(dict.fromkeys(given.methods))
    given.pretraining = sorted(set(given.pretraining))
    work = partial(run_cell, data=given.data, out=given.out)
    return experiment.run(
        given, cells_of=cells_of, work=work, report=report, check=image_options.check_images
    )


if __name__ == "__main__":
    sys.exit(main())
