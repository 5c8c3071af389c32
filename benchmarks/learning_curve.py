"""The learning curve of a run of `leap-rl learn`, as a table in Markdown and, if asked, a figure.

    .venv/bin/python -m benchmarks.learning_curve runs/pong --out curve.svg

Each line is the mean return of the episodes that ended in one of equal intervals, up to the end of
the last episode.
"""

from __future__ import annotations

import argparse
from itertools import pairwise
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
from numpy.typing import NDArray

from leap_rl.evaluation.plots import Line, Panel, draw

Columns = dict[str, NDArray[np.float64]]


def episodes_of(run: Path) -> dict[str, Columns]:
    """Return agent steps and returns of a run's episodes by game, in the order of their ends."""
    table = pq.read_table(run / "curves" / "000000.parquet").sort_by("agent_steps")
    columns = {name: table[name].to_numpy() for name in ("agent_steps", "episode_return")}
    games = np.array(table["game"].to_pylist())
    return {
        str(game): {name: column[games == game] for name, column in columns.items()}
        for game in np.unique(games)
    }


def intervals(episodes: Columns, count: int) -> list[tuple[float, int, float]]:
    """Return the end, the number of episodes and their mean return, of each interval."""
    edges = np.linspace(0, episodes["agent_steps"].max(), count + 1)
    rows = []
    for begin, end in pairwise(edges):
        inside = (episodes["agent_steps"] > begin) & (episodes["agent_steps"] <= end)
        if inside.any():
            returns = episodes["episode_return"][inside]
            rows.append((float(end), len(returns), float(returns.mean())))
    return rows


def smoothed(episodes: Columns, window: int) -> Line:
    """Return the moving mean of the return over so many episodes."""
    width = min(window, len(episodes["episode_return"]))
    means = np.convolve(episodes["episode_return"], np.full(width, 1 / width), mode="valid")
    return Line((episodes["agent_steps"][width - 1 :] / 1e6).tolist(), means.tolist())


def options() -> argparse.ArgumentParser:
    """Return the parser of the options."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("run", type=Path, help="the run's folder")
    parser.add_argument("--intervals", type=int, default=16)
    parser.add_argument("--window", type=int, default=100, help="episodes in the figure's mean")
    parser.add_argument("--out", type=Path, help="a figure, as .svg and .png")
    return parser


def main() -> None:
    """Run the command."""
    given = options().parse_args()
    curves = episodes_of(given.run)
    print("| game | million agent steps | episodes | mean return |\n|---|---:|---:|---:|")
    for game, episodes in curves.items():
        for end, count, mean in intervals(episodes, given.intervals):
            print(f"| {game} | {end / 1e6:.2f} | {count} | {mean:.1f} |")
    if given.out is not None:
        lines = {game: smoothed(episodes, given.window) for game, episodes in curves.items()}
        label = f"return, mean of {given.window} episodes"
        draw([Panel(lines, "million agent steps", label)], given.out.with_suffix(""))


if __name__ == "__main__":
    main()
