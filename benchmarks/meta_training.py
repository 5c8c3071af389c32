"""Meta-train as a protocol says, and judge what came of it.

    .venv/bin/python -m benchmarks.meta_training benchmarks/protocols/single_game.yaml

Meta-trains each variant of a protocol on each of its pools of games, with each of its seeds, and
shows the mean return over a task's whole budget by meta-step: what an agent gets while it learns.
Where the protocol asks for it, new agents then learn from what was meta-trained and from random
encoders, and `leap-rl evaluate` compares them. A protocol is a YAML file with

    question:   what is asked, in a sentence
    train:      options of `leap-rl train` that all cells share, nested as in a config
    pools:      games by the name of their pool
    variants:   by name, the options, dotted, in which each differs
    overrides:  by pool, the options, dotted, in which all of its variants differ (may be left out)
    seeds:      a list; each is a meta-training run
    evaluation: (may be left out) agents: of each run in each game; agent_steps: of each, the tasks'
                own unless given; games: by pool, the pool's own unless given; own_start: whether
                to compare with the runs' own random starts too

Finished cells are kept in OUT/cells.jsonl: call it again to resume, also after the protocol has
grown. With --report it shows what is finished and computes nothing. A cell is known by its options,
so that a changed one is computed again.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import sys
from collections.abc import Collection, Mapping, Sequence
from functools import partial
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np
import yaml
from pyarrow.parquet import read_table

from benchmarks.harness import experiment
from benchmarks.harness.cells import Cell, CellFile, key_of
from benchmarks.harness.runs import evaluate, meta_train, rows_of
from benchmarks.harness.tables import write_table
from leap_rl.config import flatten
from leap_rl.evaluation.comparison import summarize
from leap_rl.evaluation.plots import Line, Panel, draw
from leap_rl.evaluation.results import LearningCurve
from leap_rl.evaluation.statistics import FloatArray, mean_interval
from leap_rl.evaluation.summary_tables import summary_tables
from leap_rl.evaluation.verdict import verdict_of

META = ("step_ratio", "initialization_norm", "contribution_norm")
"""What is kept of the outer step."""

PATH = ("first_step", "effective_segments", "mean_weight", "energy", "length", "displacement")
"""What is kept of the paths, as means over the games."""

Curves = dict[tuple[str, str], dict[str, list[list[float]]]]
"""By pool and variant and by game: a list of series over the meta-steps, one a seed."""

FINAL_PART = 0.2
"""The part of a task's budget, at its end, in which its final return is taken."""

BINS = 20
"""Parts of an agent's budget in which its rewards are kept."""

EVALUATION_SEED = 1000
"""Of evaluations; no seed of a meta-training run."""


def training_cells(given: argparse.Namespace) -> list[Cell]:
    """Return the protocol's meta-training runs, all of one seed before any of the next."""
    protocol = read_protocol(given.protocol)
    return [
        {
            "pool": pool,
            "variant": variant,
            "seed": seed,
            "options": options_of(protocol, pool) | (options or {}),
        }
        for seed in protocol["seeds"]
        for pool in protocol["pools"]
        for variant, options in protocol["variants"].items()
    ]


def options_of(protocol: Mapping[str, Any], pool: str) -> dict[str, Any]:
    """Return the options, dotted, that all variants have in a pool."""
    own = (protocol.get("overrides") or {}).get(pool, {})
    return {**flatten(protocol["train"]), "task.games": protocol["pools"][pool], **own}


def read_protocol(path: Path) -> dict[str, Any]:
    """Return a protocol.

    Raises:
        ValueError: It cannot be read, or lacks a part.
    """
    try:
        protocol = yaml.safe_load(path.read_text())
    except (OSError, yaml.YAMLError) as error:
        raise ValueError(f"{path}: cannot be read as a protocol: {error}") from None
    parts = ("question", "train", "pools", "variants", "seeds")
    missing = [part for part in parts if not (isinstance(protocol, dict) and part in protocol)]
    if missing:
        raise ValueError(f"{path}: lacks {', '.join(missing)}; see the script's --help")
    return dict(protocol)


def evaluation_cells(given: argparse.Namespace) -> list[Cell]:
    """Return the protocol's evaluations, one a pool, each of all runs of its variants."""
    protocol = read_protocol(given.protocol)
    asked = dict(protocol.get("evaluation") or {})
    if not asked:
        return []
    games = asked.pop("games", None) or {}
    return [
        {
            "pool": pool,
            "evaluation": {"agent_steps": options_of(protocol, pool)["task.agent_steps"]}
            | asked
            | {"games": games.get(pool, own)},
            "runs": {
                variant: [
                    {"options": cell["options"], "seed": cell["seed"]}
                    for cell in training_cells(given)
                    if (cell["pool"], cell["variant"]) == (pool, variant)
                ]
                for variant in protocol["variants"]
            },
        }
        for pool, own in protocol["pools"].items()
    ]


def all_cells(given: argparse.Namespace) -> list[Cell]:
    """Return all cells; an evaluation needs its training cells finished."""
    return [*training_cells(given), *evaluation_cells(given)]


def run_cell(cell: Cell, *, out: Path, trainers: int = 1) -> dict[str, Any]:
    """Compute a cell; returns plain values."""
    if "evaluation" in cell:
        return evaluate_runs(cell, out=out, trainers=trainers)
    return train_run(cell, out=out)


def train_run(cell: Cell, *, out: Path) -> dict[str, Any]:
    """Meta-train once; returns series over the meta-steps."""
    options = dict(cell["options"])
    meta_steps = options.pop("meta.meta_steps")
    run = run_of(cell, out=out)
    meta_train(run, [*words(options), "--seed", str(cell["seed"])], meta_steps=meta_steps)
    rows = rows_of(run)[:meta_steps]
    budget = options["task.agent_steps"]
    ends = [final_returns(run, meta_step, budget) for meta_step in range(meta_steps)]
    games = games_of(rows)
    return {
        "returns": {game: series(rows, f"return/{game}/mean") for game in games},
        "final_returns": {game: [end.get(game) for end in ends] for game in games},
        "meta": {name: series(rows, f"meta/{name}") for name in META},
        "path": {name: mean_series(rows, name) for name in PATH},
        "working_s": sum(row["time/working_s"] for row in rows),
    }


def run_of(cell: Cell, *, out: Path) -> Path:
    """Return the folder of a meta-training run; more meta-steps resume the same."""
    options = {name: value for name, value in cell["options"].items() if name != "meta.meta_steps"}
    name = hashlib.sha256(json.dumps([options, cell["seed"]], sort_keys=True).encode()).hexdigest()
    return out / "runs" / name[:16]


def evaluate_runs(cell: Cell, *, out: Path, trainers: int) -> dict[str, Any]:
    """Let agents learn from a pool's runs and from random encoders; returns what is to be said."""
    asked = cell["evaluation"]
    inits = [
        f"{variant.replace(' ', '_')}="
        + ",".join(f"{run_of(run, out=out)}@{run['options']['meta.meta_steps']}" for run in runs)
        for variant, runs in cell["runs"].items()
    ]
    name = hashlib.sha256(key_of(cell).encode()).hexdigest()
    found = evaluate(
        out / "evaluations" / name[:16],
        [
            *(word for init in inits for word in ("--init", init)),
            *("--games", json.dumps(asked["games"])),
            *("--seeds", str(asked["agents"])),
            *("--agent_steps", str(asked["agent_steps"])),
            *("--own_start", json.dumps(asked.get("own_start", False))),
            *("--seed", str(EVALUATION_SEED)),
        ],
        trainers=trainers,
    )
    summary = summarize(found)
    return {
        "verdicts": [verdict_of(comparison) for comparison in summary.comparisons],
        "tables": [{"title": table.title, "rows": table.rows} for table in summary_tables(summary)],
        "rewards": {
            name: {game: reward_curves(found.of(name, game)) for game in found.games}
            for name in found.initializations
        },
    }


def reward_curves(agents: Sequence[LearningCurve]) -> list[list[float]]:
    """Return each agent's reward per 1,000 agent steps in `BINS` parts of its budget."""
    curves = []
    for agent in agents:
        parts = np.array_split(np.arange(len(agent.rewards)), BINS)
        lengths = np.diff(agent.interval_ends, prepend=0)
        curves.append([1000 * float(agent.rewards[p].sum() / lengths[p].sum()) for p in parts])
    return curves


def words(options: Mapping[str, Any]) -> list[str]:
    """Return dotted options as words of a command line."""
    return [
        word
        for name, value in options.items()
        for word in (f"--{name}", value if isinstance(value, str) else json.dumps(value))
    ]


def games_of(rows: list[dict[str, Any]]) -> list[str]:
    """Return the games whose episodes the rows tell of, sorted."""
    keys = {key for row in rows for key in row}
    return sorted(
        key.removeprefix("return/").removesuffix("/mean")
        for key in keys
        if key.startswith("return/") and key.endswith("/mean")
    )


def series(rows: list[dict[str, Any]], key: str) -> list[float | None]:
    """Return a key's values by meta-step, None where a row has none."""
    return [row.get(key) for row in rows]


def final_returns(run: Path, meta_step: int, budget: int) -> dict[str, float]:
    """Return by game the mean return of the episodes that ended in a budget's last part."""
    columns = ["game", "agent_steps", "episode_return"]
    found: dict[str, list[float]] = {}
    for row in read_table(run / "curves" / f"{meta_step:06d}.parquet", columns=columns).to_pylist():
        if row["agent_steps"] > (1 - FINAL_PART) * budget:
            found.setdefault(row["game"], []).append(row["episode_return"])
    return {game: fmean(returns) for game, returns in found.items()}


def mean_series(rows: list[dict[str, Any]], name: str) -> list[float | None]:
    """Return the mean over a row's games of a metric of their paths, by meta-step."""
    found: list[float | None] = []
    for row in rows:
        values = [
            value
            for key, value in row.items()
            if key.startswith("path/") and key.endswith(f"/{name}")
        ]
        found.append(fmean(values) if values else None)
    return found


def report(given: argparse.Namespace, results: experiment.Results) -> None:
    """Write the tables and the figures of the cells that are finished."""
    name = given.protocol.stem
    files = report_training(given, results, given.out / name)
    evaluated = [
        (cell, results[key_of(cell)]) for cell in evaluation_cells(given) if key_of(cell) in results
    ]
    if evaluated:
        files += report_evaluation(evaluated, given.out / f"{name}_evaluation")
    experiment.announce(files)


def report_training(
    given: argparse.Namespace, results: experiment.Results, path: Path
) -> list[Path]:
    """Write what agents got while they were meta-trained, by meta-step."""
    curves = curves_of(given, results, "returns")
    ends = curves_of(given, results, "final_returns")
    each = {
        (cell["pool"], cell["variant"]): agent_steps_of_meta_step(cell["options"])
        for cell in training_cells(given)
    }
    pools = {pool for pool, _ in curves}
    table: list[dict[str, Any]] = []
    panels: dict[str, dict[str, Line]] = {}
    for (pool, variant), by_game in curves.items():
        for game, seeds in by_game.items():
            row = row_of(game, np.array(seeds), np.array(ends[pool, variant][game]))
            table.append({"pool": pool, "variant": variant, **row})
            spent = [n * each[pool, variant] / 1e6 for n in range(len(seeds[0]))]
            title = title_of(pool, game, of=by_game, pools=len(pools))
            panels.setdefault(title, {})[variant] = band(spent, np.array(seeds))
    label = "agent steps of meta-training, millions"
    drawn = [Panel(lines, label, "mean return", title=at) for at, lines in panels.items()]
    return [*write_table(table, path), *draw(drawn, path)]


def report_evaluation(evaluated: Sequence[tuple[Cell, Any]], path: Path) -> list[Path]:
    """Write how new agents learned, and the verdicts."""
    panels, rows = [], []
    for cell, result in evaluated:
        budget = cell["evaluation"]["agent_steps"]
        games = cell["evaluation"]["games"]
        for game in games:
            steps = [(part + 1) * budget / BINS for part in range(BINS)]
            lines = {
                name: band(steps, np.array(by_game[game]))
                for name, by_game in result["rewards"].items()
            }
            label = "reward per 1,000 agent steps"
            title = title_of(cell["pool"], game, of=games, pools=len(evaluated))
            panels.append(Panel(lines, "agent steps", label, title=title))
        for table in result["tables"]:
            against, by_game, _ = table["title"].partition(", game by game")
            told = {"pool": cell["pool"], "compared": against}
            rows += [told | row for row in table["rows"] if by_game]
    verdicts = path.with_name(f"{path.name}_verdicts.md")
    lines_of = (f"* {cell['pool']}: {said}" for cell, r in evaluated for said in r["verdicts"])
    verdicts.write_text("\n".join(lines_of) + "\n")
    return [*write_table(rows, path), *draw(panels, path), verdicts]


def title_of(pool: str, game: str, *, of: Collection[str], pools: int) -> str:
    """Return a panel's title, as short as it can be: it is of a game of a pool, one of so many."""
    if len(of) == 1 and pools > 1:
        return pool
    short = game.removeprefix("MinAtar/").removesuffix("-v1")
    return short if pools == 1 else f"{pool}: {short}"


def band(x: Sequence[float], series: FloatArray) -> Line:
    """Return the mean of series [n, x] and, where there are several, their least and largest."""
    low, high = (
        (series.min(0).tolist(), series.max(0).tolist()) if len(series) > 1 else (None, None)
    )
    return Line(list(x), series.mean(0).tolist(), low=low, high=high)


def curves_of(given: argparse.Namespace, results: experiment.Results, of: str) -> Curves:
    """Return a result's series of all seeds, by pool and variant and by game."""
    found: Curves = {}
    for cell in training_cells(given):
        if key_of(cell) not in results:
            continue
        by_game = found.setdefault((cell["pool"], cell["variant"]), {})
        for game, values in results[key_of(cell)][of].items():
            by_game.setdefault(game, []).append([np.nan if v is None else v for v in values])
    return found


def agent_steps_of_meta_step(options: Mapping[str, Any]) -> int:
    """Return the agent steps of all of a meta-step's tasks."""
    return int(options["meta.batch_size"] * options["task.agent_steps"])


def row_of(game: str, curves: FloatArray, ends: FloatArray) -> dict[str, Any]:
    """Return a row of the table.

    Args:
        game: Its name.
        curves: The mean return over a task by meta-step, [seeds, meta-steps].
        ends: The mean return at a task's end, likewise.
    """
    last = curves.shape[1] - 1
    shown = {"first": 0, "1/3": last // 3, "2/3": 2 * last // 3, "last": last}
    row = {
        "game": game,
        "seeds": len(curves),
        **{name: f"{curves[:, step].mean():.2f}" for name, step in shown.items()},
        "last, at the task's end": f"{ends[:, last].mean():.2f}",
    }
    if last:
        rise = curves[:, (last + 1) // 2 :].mean(axis=1) - curves[:, 0]
        row["later half less first"] = experiment.shown(mean_interval(rise), ".2f")
    return row


def options() -> argparse.ArgumentParser:
    """Return the parser of the options."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("protocol", type=Path, help="a YAML file, see above")
    parser.add_argument("--out", type=Path, help="folder of what comes out: runs/PROTOCOL")
    parser.add_argument(
        "--processes",
        type=experiment.positive,
        default=len(os.sched_getaffinity(0)),
        help="cells at a time, each on one core",
    )
    parser.add_argument(
        "--report", action="store_true", help="show what is finished, and compute nothing"
    )
    return parser


def show(given: argparse.Namespace) -> int:
    """Report on what is finished; returns the exit status."""
    try:
        results = CellFile(given.out / "cells.jsonl").read()
        finished = sum(key_of(cell) in results for cell in all_cells(given))
    except ValueError as error:
        print(f"meta_training.py: {error}", file=sys.stderr)
        return experiment.EXIT_USAGE
    print(f"{finished} of {len(all_cells(given))} cells are done")
    if finished:
        report(given, results)
    return 0


def main() -> int:
    """Run the command."""
    given = options().parse_args()
    given.out = given.out or Path("runs") / given.protocol.stem
    if given.report:
        return show(given)
    work = partial(run_cell, out=given.out)
    status = experiment.run(given, cells_of=training_cells, work=work, report=lambda *_: None)
    if status:
        return status
    # Evaluations share the cores: as many at a time as there are, with trainers of their own.
    evaluations = max(1, len(evaluation_cells(given)))
    trainers = max(1, given.processes // evaluations)
    given.processes = min(given.processes, evaluations)
    work = partial(run_cell, out=given.out, trainers=trainers)
    return experiment.run(given, cells_of=all_cells, work=work, report=report)


if __name__ == "__main__":
    sys.exit(main())
