"""Does meta-training make agents learn faster, meta-step after meta-step?

    .venv/bin/python benchmarks/meta_training_curves.py benchmarks/protocols/single_game.yaml

Meta-trains each variant of a protocol on each of its pools of games, with each of its seeds, and
shows the mean return over a task's whole budget by meta-step: what an agent gets while it learns.
A protocol is a YAML file with

    question:  what is asked, in a sentence
    train:     options of `leap-rl train` that all cells share, nested as in a config
    pools:     games by the name of their pool
    variants:  by name, the options, dotted, in which each differs
    overrides: by pool, the options, dotted, in which all of its variants differ (may be left out)
    seeds:     a list

Finished cells are kept in OUT/cells.jsonl: call it again to go on, also after the protocol has
grown. A cell is known by its options, so that a changed one is computed again.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import sys
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np
import yaml
from pyarrow.parquet import read_table

from leap_rl.config import flatten
from leap_rl.evaluation import experiment
from leap_rl.evaluation.cells import Cell, key_of
from leap_rl.evaluation.figures import Line, Panel, draw, write_table
from leap_rl.evaluation.runs import meta_train, rows_of
from leap_rl.evaluation.statistics import FloatArray, mean_interval

META = ("step_ratio", "initialization_norm", "contribution_norm")
"""What is kept of the outer step."""

PATH = ("first_step", "effective_segments", "mean_weight", "energy", "length", "displacement")
"""What is kept of the paths, as means over the games."""

Curves = dict[tuple[str, str], dict[str, list[list[float]]]]
"""By pool and variant and by game: a list of series over the meta-steps, one a seed."""

FINAL_PART = 0.2
"""The part of a task's budget, at its end, in which its final return is taken."""


def cells_of(given: argparse.Namespace) -> list[Cell]:
    """Return the protocol's cells, all of one seed before any of the next."""
    protocol = read_protocol(given.protocol)
    return [
        {
            "pool": pool,
            "variant": variant,
            "seed": seed,
            "options": flatten(protocol["train"])
            | {"task.games": games}
            | (protocol.get("overrides") or {}).get(pool, {})
            | (options or {}),
        }
        for seed in protocol["seeds"]
        for pool, games in protocol["pools"].items()
        for variant, options in protocol["variants"].items()
    ]


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


def run_cell(cell: Cell, *, out: Path) -> dict[str, Any]:
    """Meta-train once; returns series over the meta-steps."""
    options = dict(cell["options"])
    meta_steps = options.pop("meta.meta_steps")
    # Without the meta-steps: more of them resume the same run.
    name = hashlib.sha256(json.dumps([options, cell["seed"]], sort_keys=True).encode()).hexdigest()
    run = out / "runs" / name[:16]
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
    """Write the table and the figure."""
    curves = curves_of(given, results, "returns")
    ends = curves_of(given, results, "final_returns")
    table: list[dict[str, Any]] = []
    panels: dict[str, dict[str, Line]] = {}
    for (pool, variant), by_game in curves.items():
        for game, seeds in by_game.items():
            row = row_of(game, np.array(seeds), np.array(ends[pool, variant][game]))
            table.append({"pool": pool, "variant": variant, **row})
            middle = np.mean(seeds, axis=0)
            panels.setdefault(f"{pool}: {game}", {})[variant] = Line(
                list(range(len(middle))),
                middle.tolist(),
                low=np.min(seeds, axis=0).tolist() if len(seeds) > 1 else None,
                high=np.max(seeds, axis=0).tolist() if len(seeds) > 1 else None,
            )
    name = given.protocol.stem
    files = write_table(table, given.out / name)
    files += draw(
        [Panel(lines, "meta-step", "mean return", title=title) for title, lines in panels.items()],
        given.out / name,
    )
    experiment.announce(files)


def curves_of(given: argparse.Namespace, results: experiment.Results, of: str) -> Curves:
    """Return a result's series of all seeds, by pool and variant and by game."""
    found: Curves = {}
    for cell in cells_of(given):
        by_game = found.setdefault((cell["pool"], cell["variant"]), {})
        for game, values in results[key_of(cell)][of].items():
            by_game.setdefault(game, []).append([np.nan if v is None else v for v in values])
    return found


def row_of(game: str, curves: FloatArray, ends: FloatArray) -> dict[str, Any]:
    """Return a row of the table.

    Args:
        game: Its name.
        curves: The mean return over a task by meta-step, [seeds, meta-steps].
        ends: The mean return at a task's end, likewise.
    """
    last = curves.shape[1] - 1
    shown = sorted({0, last // 3, 2 * last // 3, last})
    row = {
        "game": game,
        "seeds": len(curves),
        **{f"meta-step {step}": f"{curves[:, step].mean():.2f}" for step in shown},
        f"at the task's end, {last}": f"{ends[:, last].mean():.2f}",
    }
    if last:
        rise = curves[:, (last + 1) // 2 :].mean(axis=1) - curves[:, 0]
        row["later half less 0"] = experiment.shown(mean_interval(rise), ".2f")
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
    return parser


def main() -> int:
    """Run the command."""
    given = options().parse_args()
    given.out = given.out or Path("runs") / given.protocol.stem
    work = partial(run_cell, out=given.out)
    return experiment.run(given, cells_of=cells_of, work=work, report=report)


if __name__ == "__main__":
    sys.exit(main())
