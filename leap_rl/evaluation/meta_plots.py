"""Plots of a meta-training run, from the rows of its metrics: docs/metrics.md explains them."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import NamedTuple

import numpy as np
from scipy.cluster import hierarchy
from scipy.spatial.distance import squareform

from leap_rl.evaluation.plots import HeatMap, Line, Panel, title_of
from leap_rl.evaluation.statistics import FloatArray
from leap_rl.tracking.metrics import by_game

Row = Mapping[str, float]


class CosineTable(NamedTuple):
    """Mean cosines between the contributions of games, over the meta-steps of a run."""

    games: tuple[str, ...]
    """G of them, alike ones beside each other."""
    means: FloatArray
    """Mean over the meta-steps in which both games were drawn, [G, G]; NaN where they never were,
    and for a game with itself unless it filled several slots."""


def validation_panels(rows: Sequence[Row]) -> list[Panel]:
    """Return what versions gain over version 0, where several were validated."""
    judged = [row for row in rows if "validation/gain" in row]
    if len(judged) < 2:
        return []
    gains = Line([row["meta_step"] for row in judged], [row["validation/gain"] for row in judged])
    return [Panel({"mean": gains}, "version", "gain over version 0, deviations")]


def path_panels(rows: Sequence[Row]) -> list[Panel]:
    """Return the energy (p = 2) or length (p = 1) of each game's gradient path over meta-steps."""
    return [
        Panel(
            {which: Line([at for at, _ in points], [value for _, value in points])},
            "meta-step",
            f"path {which}",
            title=title_of(game),
        )
        for which in ("energy", "length")
        for game, points in sorted(path_points(rows, which).items())
    ]


def path_points(rows: Sequence[Row], which: str) -> dict[str, list[tuple[float, float]]]:
    """Return by game the meta-steps that drew it, and its path's energy or length in each."""
    found: dict[str, list[tuple[float, float]]] = {}
    for row in rows:
        for game, value in by_game(row, "path", which).items():
            found.setdefault(game, []).append((row["meta_step"], value))
    return found


def cosine_panels(rows: Sequence[Row]) -> list[HeatMap]:
    """Return `cosine_table` as a heat map; its colors end at the largest cosine of two games."""
    games, means = cosine_table(rows)
    if not games:
        return []
    largest = float(np.nanmax(np.abs(means[~np.eye(len(games), dtype=bool)]), initial=0.0))
    limit = min(1.0, largest or 1.0)
    label = "mean cosine between contributions"
    return [HeatMap([title_of(game) for game in games], means, label, limit=limit)]


def cosine_table(rows: Sequence[Row]) -> CosineTable:
    """Return the mean cosine of each pair of games over meta-steps."""
    found: dict[tuple[str, str], list[float]] = {}
    known = {game for row in rows for game in by_game(row, "loss", "total")}
    for row in rows:
        for key, value in row.items():
            if key.startswith("cosine/"):
                found.setdefault(_pair(key, known), []).append(value)
    games = sorted({game for pair in found for game in pair})
    places = {game: place for place, game in enumerate(games)}
    means = np.full((len(games), len(games)), np.nan)
    for (first, second), cosines in found.items():
        means[places[first], places[second]] = np.mean(cosines)
        means[places[second], places[first]] = np.mean(cosines)
    order = _alike_together(means)
    return CosineTable(tuple(games[place] for place in order), means[np.ix_(order, order)])


def _pair(key: str, known: Collection[str]) -> tuple[str, str]:
    """Return the two games of a cosine's key; a name may have a slash."""
    _, *parts = key.split("/")
    pairs = [("/".join(parts[:cut]), "/".join(parts[cut:])) for cut in range(1, len(parts))]
    return next((pair for pair in pairs if set(pair) <= set(known)), pairs[len(pairs) // 2])


def _alike_together(means: FloatArray) -> list[int]:
    """Order games so that those that pull together are neighbors: average linkage's leaves."""
    if len(means) < 3:
        return list(range(len(means)))
    known = means[np.isfinite(means)]
    distances = 1.0 - np.where(np.isfinite(means), means, known.mean())
    np.fill_diagonal(distances, 0.0)
    tree = hierarchy.linkage(
        squareform(distances, checks=False), method="average", optimal_ordering=True
    )
    return [int(leaf) for leaf in hierarchy.leaves_list(tree)]
