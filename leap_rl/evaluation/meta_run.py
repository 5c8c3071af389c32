"""Plots, sentences and tables of a meta-training run, from its metrics (docs/metrics.md)."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from statistics import fmean
from typing import Any, NamedTuple

import numpy as np
from scipy.cluster import hierarchy
from scipy.spatial.distance import squareform

from leap_rl.evaluation.plots import HeatMap, Line, Panel, title_of
from leap_rl.evaluation.statistics import FloatArray
from leap_rl.storage.run_folder import RunFolder
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
    """Return what versions gain over the baseline, where several were validated."""
    judged = [row for row in rows if "validation/gain" in row]
    if len(judged) < 2:
        return []
    gains = Line([row["meta_step"] for row in judged], [row["validation/gain"] for row in judged])
    return [Panel({"mean": gains}, "version", "gain over the baseline, deviations")]


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


_COLUMNS = {
    "mean return": ("return", "mean", "{:,.1f}"),
    "training error": ("error", "training", "{:.1%}"),
    "contribution's norm": ("path", "contribution_norm", "{:,.3g}"),
    "cosine to the mean": ("path", "cosine", "{:+.2f}"),
    "displacement": ("path", "displacement", "{:.3g}"),
}
"""Metrics of a game, AREA/GAME/STAT, and how their means are shown."""


def closed_slots(folder: RunFolder) -> list[dict[str, Any]]:
    """Read the slots of closed rounds, each with its `round`; RunFolderError if one is damaged."""
    return [
        {**slot, "round": number - 1}
        for number in folder.checkpoints()
        for slot in folder.read_state(number).get("slots", [])
    ]


def history_sentence(slots: Sequence[Mapping[str, Any]]) -> str:
    """Return a sentence on the failures in closed slots, and their cost."""
    if not slots:
        return "No task is counted yet."
    extra = sum(slot["attempt"] - 1 for slot in slots)
    repeated = (
        f"taken over by another trainer ({extra} more attempts, each from the newest snapshot)"
    )
    counts = {
        repeated: sum(slot["attempt"] > 1 for slot in slots),
        "restarted with another seed": sum(slot.get("restarts", 0) > 0 for slot in slots),
        "cut off": sum(bool(slot.get("cut_off")) for slot in slots),
        "dropped": sum("dropped" in slot for slot in slots),
    }
    parts = [f"{count} {what}" for what, count in counts.items() if count]
    tasks = len(slots) - counts["dropped"]
    return f"{tasks} tasks count; {', '.join(parts) or 'each was done in one go'}."


def run_verdict(rows: Sequence[Row], meta_steps: int) -> list[str]:
    """Return sentences on a meta-training run's progress, validation and paths."""
    if not rows:
        return [
            "No meta-step is done yet: there is nothing to judge.",
            "Come back when the first row is in metrics.jsonl.",
        ]
    done = int(rows[-1].get("meta_step", len(rows) - 1)) + 1  # a fork's rows begin where it did
    state = "finished" if done >= meta_steps else f"under way, {done / meta_steps:.0%} done"
    sentences = [f"Meta-trained for {done} of {meta_steps} meta-steps ({state})."]
    judged = [row for row in rows if "validation/gain" in row]
    if len(judged) > 1:
        newest, best = judged[-1], judged[-1]["validation/best"]
        agents = newest.get("validation/agents", 1)
        sentences.append(
            f"In validation, version {newest['meta_step']:.0f} gains "
            f"{newest['validation/gain']:+.2f} standard deviations over the baseline; version "
            f"{best:.0f} did best so far. That is of {agents:.0f} agent{'s' * (agents > 1)} a "
            "game: a hint, no proof."
        )
    else:
        sentences.append("Nothing here says whether the initialization helps: evaluate it.")
    trend = _trend_sentence(rows)
    return [*sentences, trend] if trend else sentences


def _trend_sentence(rows: Sequence[Row]) -> str | None:
    part = max(1, len(rows) // 10)
    for which in ("energy", "length"):
        first, last = (path_points(part_of, which) for part_of in (rows[:part], rows[-part:]))
        both = [game for game in first if game in last and _mean_of(first[game]) > 0]
        if len(rows) > 1 and both:
            falls = sum(_mean_of(last[game]) < _mean_of(first[game]) for game in both)
            return (
                f"The {which} of the gradient paths, which Leap makes smaller, fell in {falls} of "
                f"the {len(both)} games that are both among the first and the last "
                f"{part} meta-step{'s' * (part > 1)}."
            )
    return None


def _mean_of(points: Sequence[tuple[float, float]]) -> float:
    return fmean(value for _, value in points)


def game_rows(rows: Sequence[Row]) -> list[dict[str, str]]:
    """Return a table of games: in how many meta-steps each was drawn, and its metrics' means."""
    games = sorted({game for row in rows for game in by_game(row, "loss", "total")})
    table = [
        {
            "game": game,
            "meta-steps": str(sum(f"loss/{game}/total" in row for row in rows)),
            **{
                column: _mean(rows, f"{area}/{game}/{stat}", form)
                for column, (area, stat, form) in _COLUMNS.items()
            },
        }
        for game in games
    ]
    shown = [name for name in (table[0] if table else ()) if any(row[name] != "–" for row in table)]
    return [{name: row[name] for name in shown} for row in table]


def _mean(rows: Sequence[Row], key: str, form: str) -> str:
    values = [row[key] for row in rows if key in row]
    return form.format(fmean(values)) if values else "–"
