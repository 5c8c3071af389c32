"""Plots of a meta-training run, from the rows of its metrics: paths, and who pulls with whom.

docs/metrics.md explains the rows.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from scipy.cluster import hierarchy
from scipy.spatial.distance import squareform

from leap_rl.evaluation.plots import HeatMap, Line, Panel, draw
from leap_rl.evaluation.statistics import FloatArray
from leap_rl.evaluation.transfer_plots import title_of

COLUMNS = 5

Row = Mapping[str, float]


@dataclass(frozen=True, kw_only=True, slots=True)
class CosineTable:
    """How the contributions of games point to each other, over the meta-steps of a run."""

    games: tuple[str, ...]
    """G of them, alike ones beside each other."""
    means: FloatArray
    """Mean cosine over the meta-steps in which both games were drawn, [G, G]; NaN where they never
    were, and for a game with itself unless it filled several slots."""
    meta_steps: FloatArray
    """How many meta-steps that is, [G, G]."""


def draw_meta_figures(rows: Sequence[Row], folder: Path) -> list[Path]:
    """Draw `paths` and `cosines`, each in every format, where the rows have them."""
    files = []
    panels = path_panels(rows)
    if panels:
        files += draw(panels, folder / "paths", columns=COLUMNS)
    table = cosine_table(rows)
    if len(table.games) > 1:
        files += draw([cosine_map(table)], folder / "cosines")
    return files


def path_panels(rows: Sequence[Row]) -> list[Panel]:
    """Return the energy (p = 2) or length (p = 1) of each game's gradient path over meta-steps."""
    found: dict[tuple[str, str], list[tuple[float, float]]] = {}
    for row in rows:
        for key, value in row.items():
            match = re.fullmatch(r"path/(.+)/(energy|length)", key)
            if match:
                found.setdefault((match[1], match[2]), []).append((row["meta_step"], value))
    return [
        Panel(
            {which: Line([at for at, _ in points], [value for _, value in points])},
            "meta-step",
            f"path {which}",
            title=title_of(game),
        )
        for (game, which), points in sorted(found.items())
    ]


def cosine_table(rows: Sequence[Row]) -> CosineTable:
    """Return the mean cosine of each pair of games over meta-steps."""
    found: dict[tuple[str, str], list[float]] = {}
    for row in rows:
        for key, value in row.items():
            area, *parts = key.split("/")
            if area == "cosine":
                # Names of a pool are of one kind: all of them have a slash, or none.
                half = len(parts) // 2
                pair = ("/".join(parts[:half]), "/".join(parts[half:]))
                found.setdefault(pair, []).append(value)
    games = sorted({game for pair in found for game in pair})
    places = {game: place for place, game in enumerate(games)}
    means = np.full((len(games), len(games)), np.nan)
    counts = np.zeros((len(games), len(games)))
    for (first, second), cosines in found.items():
        for one, other in ((first, second), (second, first)):
            means[places[one], places[other]] = np.mean(cosines)
            counts[places[one], places[other]] = len(cosines)
    order = _alike_together(means)
    return CosineTable(
        games=tuple(games[place] for place in order),
        means=means[np.ix_(order, order)],
        meta_steps=counts[np.ix_(order, order)],
    )


def cosine_map(table: CosineTable) -> HeatMap:
    """Return the table as a heat map; its colours end at the largest cosine between two games."""
    between = table.means[~np.eye(len(table.games), dtype=bool)]
    limit = float(np.nanmax(np.abs(between), initial=0.0)) or 1.0
    return HeatMap(
        [title_of(game) for game in table.games],
        table.means.tolist(),
        "mean cosine between contributions",
        limit=min(1.0, limit),
    )


def _alike_together(means: FloatArray) -> list[int]:
    """An order in which games that pull together are neighbours: average linkage's leaves."""
    if len(means) < 3:
        return list(range(len(means)))
    known = means[np.isfinite(means)]
    distances = 1.0 - np.where(np.isfinite(means), means, known.mean())
    np.fill_diagonal(distances, 0.0)
    tree = hierarchy.linkage(
        squareform(distances, checks=False), method="average", optimal_ordering=True
    )
    return [int(leaf) for leaf in hierarchy.leaves_list(tree)]
