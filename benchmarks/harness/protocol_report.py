"""Tables and plots of a protocol's finished cells."""

from __future__ import annotations

import itertools
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.harness.cells import Cell, key_of
from benchmarks.harness.experiment import Results
from benchmarks.harness.protocol import Protocol, evaluation_cells, training_cells
from benchmarks.harness.protocol_runs import BINS
from benchmarks.harness.tables import write_table
from leap_rl.evaluation.plots import Line, Panel, draw
from leap_rl.evaluation.statistics import FloatArray, mean_interval, shown

SAMPLED = "those of the meta-step"
"""The name in place of a game if a meta-step has only some of the pool's games."""

COLUMNS = 4
"""Panels beside each other in a figure, at most."""

Curves = dict[tuple[str, str], dict[str, list[list[float]]]]
"""By pool and variant and by game: a series over the meta-steps for each meta-training run."""


def write_report(protocol: Protocol, results: Results, path: Path) -> list[Path]:
    """Write the tables and plots of the finished cells; returns the files."""
    files = report_training(protocol, results, path)
    pulled = cosine_rows(protocol, results)
    if pulled:
        files += write_table(pulled, path.with_name(f"{path.name}_cosines"))
    evaluated = [
        (cell, results[key_of(cell)])
        for cell in evaluation_cells(protocol)
        if key_of(cell) in results
    ]
    if evaluated:
        files += report_evaluation(evaluated, path.with_name(f"{path.name}_evaluation"))
    return files


def report_training(protocol: Protocol, results: Results, path: Path) -> list[Path]:
    """Write the agents' returns during meta-training, by meta-step."""
    curves = curves_of(protocol, results, "returns")
    ends = curves_of(protocol, results, "final_returns")
    each = {  # agent steps of all of a meta-step's tasks
        (cell["pool"], cell["variant"]): cell["options"]["meta.batch_size"]
        * cell["options"]["task.agent_steps"]
        for cell in training_cells(protocol)
    }
    pools = {pool for pool, _ in curves}
    table: list[dict[str, Any]] = []
    panels: dict[str, dict[str, Line]] = {}
    for (pool, variant), by_game in curves.items():
        for game, runs in by_game.items():
            row = row_of(game, np.array(runs), np.array(ends[pool, variant][game]))
            table.append({"pool": pool, "variant": variant, **row})
            if len(runs[0]) == 1:
                continue  # a point is no curve
            spent = [n * each[pool, variant] / 1e6 for n in range(len(runs[0]))]
            title = title_of(pool, game, of=by_game, pools=len(pools))
            panels.setdefault(title, {})[variant] = band(spent, np.array(runs))
    label = "agent steps of meta-training, millions"
    drawn = [Panel(lines, label, "mean return", title=at) for at, lines in panels.items()]
    return [*write_table(table, path), *(draw(drawn, path, columns=COLUMNS) if drawn else [])]


def cosine_rows(protocol: Protocol, results: Results) -> list[dict[str, Any]]:
    """Return the cosines between contributions of tasks, by pool and variant."""
    found: dict[tuple[str, str], list[list[tuple[str, str, float]]]] = {}
    for cell in training_cells(protocol):
        pairs = results.get(key_of(cell), {}).get("cosines")
        if pairs:
            found.setdefault((cell["pool"], cell["variant"]), []).append(pairs)
    rows = []
    for (pool, variant), runs in found.items():
        alike: list[float] = []
        different: list[float] = []
        for first, second, cosine in itertools.chain.from_iterable(runs):
            same = first.partition("@")[0] == second.partition("@")[0]
            (alike if same else different).append(cosine)
        rows.append(
            {
                "pool": pool,
                "variant": variant,
                "runs": len(runs),
                "cosine between games": _spread(different),
                "within a game": _spread(alike),
            }
        )
    return rows


def report_evaluation(evaluated: Sequence[tuple[Cell, Any]], path: Path) -> list[Path]:
    """Write the learning curves of new agents, and the verdicts."""
    panels, rows = [], []
    for cell, result in evaluated:
        budget = cell["evaluation"]["agent_steps"]
        games = cell["evaluation"]["games"]
        for game in games:
            steps = [(part + 1) * budget / BINS for part in range(BINS)]
            lines = {
                name: band(steps, np.array(by_game[game]))
                for name, by_game in result["rewards"].items()
                if not name.endswith("@0")  # random starts too, equal for all methods
            }
            label = "reward per 1,000 agent steps"
            title = title_of(cell["pool"], game, of=games, pools=len(evaluated))
            panels.append(Panel(lines, "agent steps", label, title=title))
        for table in result["tables"]:
            against, by_game, _ = table["title"].partition(", game by game")
            told = {"pool": cell["pool"], "compared": against}
            rows += [told | _in_agents(row) for row in table["rows"] if by_game]
    verdicts = path.with_name(f"{path.name}_verdicts.md")
    sentences = [
        f"* {cell['pool']}: {said}"
        for cell, result in evaluated
        for said in result["verdicts"]
        if "@0: " not in said  # the table has them
    ]
    verdicts.write_text("\n".join(sentences) + "\n")
    return [*write_table(rows, path), *draw(panels, path, columns=COLUMNS), verdicts]


def _in_agents(row: Mapping[str, Any]) -> dict[str, Any]:
    """Rename the column that stored evaluations call "seeds": it counts agents."""
    return {"agents" if name == "seeds" else name: value for name, value in row.items()}


def title_of(pool: str, game: str, *, of: Collection[str], pools: int) -> str:
    """Return a panel's title: the pool and the game, unless there is only one."""
    if len(of) == 1 and pools > 1:
        return pool
    short = game.removeprefix("MinAtar/").removesuffix("-v1")
    return short if pools == 1 else f"{pool}:\n{short}"


def band(x: Sequence[float], series: FloatArray) -> Line:
    """Return the mean of series [n, x] and, if n > 1, their minimum and maximum."""
    low, high = (
        (series.min(0).tolist(), series.max(0).tolist()) if len(series) > 1 else (None, None)
    )
    return Line(list(x), series.mean(0).tolist(), low=low, high=high)


def curves_of(protocol: Protocol, results: Results, of: str) -> Curves:
    """Return a result's series of all runs, by pool and variant and by game.

    A meta-step that is smaller than its pool leaves games out; then the series is the mean over the
    games of each meta-step.
    """
    found: Curves = {}
    for cell in training_cells(protocol):
        if key_of(cell) not in results:
            continue
        by_game = found.setdefault((cell["pool"], cell["variant"]), {})
        series = {
            game: [np.nan if value is None else value for value in values]
            for game, values in results[key_of(cell)][of].items()
        }
        if len(protocol["pools"][cell["pool"]]) > cell["options"]["meta.batch_size"]:
            series = {SAMPLED: np.nanmean(list(series.values()), axis=0).tolist()}
        for game, values in series.items():
            by_game.setdefault(game, []).append(values)
    return found


def row_of(game: str, curves: FloatArray, ends: FloatArray) -> dict[str, Any]:
    """Return a row of the table.

    Args:
        game: Its name.
        curves: The mean return over a task by meta-step, [runs, meta-steps].
        ends: The mean return at a task's end, likewise.
    """
    last = curves.shape[1] - 1
    row = {"game": game, "runs": len(curves)}
    if last:
        columns = {"first": 0, "1/3": last // 3, "2/3": 2 * last // 3, "last": last}
        rise = curves[:, (last + 1) // 2 :].mean(axis=1) - curves[:, 0]
        return {
            **row,
            **{name: f"{curves[:, step].mean():.2f}" for name, step in columns.items()},
            "last, at the task's end": _mean(ends[:, last]),
            "later half less first": shown(mean_interval(rise), ".2f"),
        }
    return {  # agents from random encoders
        **row,
        "mean return": _mean(curves[:, 0]),
        "least to most": _range(curves[:, 0]),
        "at the end": _mean(ends[:, 0]),
        "least to most at the end": _range(ends[:, 0]),
    }


def _mean(values: FloatArray) -> str:
    """NaN stands for a run in which no episode ended."""
    return "–" if np.isnan(values).any() else f"{values.mean():.2f}"


def _spread(values: Sequence[float]) -> str:
    """Return mean, minimum and maximum of cosines."""
    cosines = np.array(values)
    return f"{_mean(cosines)} ({_range(cosines)})" if values else "–"


def _range(values: FloatArray) -> str:
    return "–" if np.isnan(values).any() else f"{values.min():.2f} to {values.max():.2f}"
