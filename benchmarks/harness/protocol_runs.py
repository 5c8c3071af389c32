"""Computes the cells of a protocol of meta-training."""

from __future__ import annotations

import hashlib
import itertools
import json
from collections.abc import Sequence
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np
from pyarrow.parquet import read_table

from benchmarks.harness.cells import Cell, key_of
from benchmarks.harness.runs import evaluate, meta_train, rows_of
from leap_rl.evaluation.comparison import summarize
from leap_rl.evaluation.meta_run import cosine_table
from leap_rl.evaluation.results import LearningCurve
from leap_rl.evaluation.summary_tables import summary_tables
from leap_rl.evaluation.verdict import verdict_of
from leap_rl.tracking.metrics import by_game

Rows = list[dict[str, Any]]

META = ("step_ratio", "initialization_norm", "contribution_norm")
"""The metrics of the outer step in a cell's result."""

PATH = ("first_step", "effective_segments", "mean_weight", "energy", "length", "displacement")
"""The metrics of the paths in a cell's result, as means over the games."""

FINAL_PART = 0.2
"""The part of a task's budget, at its end, in which its final return is taken."""

BINS = 20
"""Parts of an agent's budget, each with its mean reward in a cell's result."""

EVALUATION_SEED = 1000
"""Seed of evaluations, unlike that of any meta-training run."""


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
    meta_train(run, {**options, "seed": cell["seed"]}, meta_steps=meta_steps)
    rows = rows_of(run)[:meta_steps]
    budget = options["task.agent_steps"]
    ends = [final_returns(run, meta_step, budget) for meta_step in range(meta_steps)]
    games = games_of(rows)
    return {
        "returns": {game: [row.get(f"return/{game}/mean") for row in rows] for game in games},
        "final_returns": {game: [end.get(game) for end in ends] for game in games},
        "meta": {name: [row.get(f"meta/{name}") for row in rows] for name in META},
        "path": {name: mean_series(rows, name) for name in PATH},
        "cosines": cosines_of(rows),
        "working_s": sum(row["time/working_s"] for row in rows),
    }


def run_of(cell: Cell, *, out: Path) -> Path:
    """Return the folder of a meta-training run; with more meta-steps it is the same run."""
    options = {name: value for name, value in cell["options"].items() if name != "meta.meta_steps"}
    name = hashlib.sha256(json.dumps([options, cell["seed"]], sort_keys=True).encode()).hexdigest()
    return out / "runs" / name[:16]


def evaluate_runs(cell: Cell, *, out: Path, trainers: int) -> dict[str, Any]:
    """Evaluate a pool's runs against random encoders; returns verdicts, tables and rewards."""
    asked = cell["evaluation"]
    inits = [
        f"{variant.replace(' ', '_')}="
        + ",".join(f"{run_of(run, out=out)}@{run['options']['meta.meta_steps']}" for run in runs)
        for variant, runs in cell["runs"].items()
    ]
    name = hashlib.sha256(key_of(cell).encode()).hexdigest()
    found = evaluate(
        out / "evaluations" / name[:16],
        inits,
        {
            "task.games": asked["games"],
            "seeds": asked["agents"],
            "task.agent_steps": asked["agent_steps"],
            "own_start": asked.get("own_start", False),
            "seed": EVALUATION_SEED,
        },
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


def games_of(rows: Rows) -> list[str]:
    """Return the games that have episodes in the rows, sorted."""
    return sorted({game for row in rows for game in by_game(row, "return", "mean")})


def final_returns(run: Path, meta_step: int, budget: int) -> dict[str, float]:
    """Return by game the mean return of the episodes that ended in a budget's last part."""
    columns = ["game", "agent_steps", "episode_return"]
    found: dict[str, list[float]] = {}
    for row in read_table(run / "curves" / f"{meta_step:06d}.parquet", columns=columns).to_pylist():
        if row["agent_steps"] > (1 - FINAL_PART) * budget:
            found.setdefault(row["game"], []).append(row["episode_return"])
    return {game: fmean(returns) for game, returns in found.items()}


def cosines_of(rows: Rows) -> list[tuple[str, str, float]]:
    """Return each pair of games and the mean cosine of their contributions over the meta-steps.

    A game that filled several slots of a meta-step makes a pair with itself.
    """
    games, means = cosine_table(rows)
    pairs = itertools.combinations_with_replacement(range(len(games)), 2)
    return [(games[a], games[b], means[a, b]) for a, b in pairs if np.isfinite(means[a, b])]


def mean_series(rows: Rows, name: str) -> list[float | None]:
    """Return the mean over a row's games of a metric of their paths, by meta-step."""
    of_games = (by_game(row, "path", name).values() for row in rows)
    return [fmean(values) if values else None for values in of_games]
