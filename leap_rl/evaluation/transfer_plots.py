"""Panels of an evaluation's plots; a list is empty where there is nothing to show.

Dimensions: R runs, A agents, G points of a grid.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial

import numpy as np

from leap_rl.core.seeding import Purpose, derive_seed
from leap_rl.evaluation.measures import Agents, grid, mean_curve, means_of
from leap_rl.evaluation.plots import IntervalPanel, Line, Panel, title_of
from leap_rl.evaluation.savings import level_at, reached
from leap_rl.evaluation.statistics import (
    FloatArray,
    IntervalEstimate,
    bootstrap,
    performance_profile,
)
from leap_rl.evaluation.summary import Game, Summary

THRESHOLDS = 61
PROFILE_RESAMPLES = 2_000
"""As in Agarwal et al.'s own library: the band is of many points, and drawn."""
BAND_RESAMPLES = 500
TAIL = 0.025
LEVEL = 0.5
"""Of the reference's gain: the level that is drawn in."""

NamedLine = tuple[str, Line]


def curve_panels(summary: Summary) -> list[Panel]:
    """Return the mean return by agent steps, by game, with the level of half of random's gain.

    Bands are 95 % percentile bootstrap intervals of the mean over agents (over runs, where there
    are several): they never leave the data's range. Crosses mark where curves reach the level.
    """

    def lines(name: str, game: Game) -> Iterable[NamedLine]:
        yield name, _mean_line(game.runs[name], game.reference.budget)

    panels = []
    drawn = _by_game(summary, lines, "mean return")
    for panel, game in zip(drawn, summary.games.values(), strict=True):
        if game.reference.learns:
            level, marks = level_at(LEVEL, game.reference.means), {}
            for name, runs in game.runs.items():
                at = reached(means_of(runs).curve, level, game.reference.budget)
                if at.bound != "at least":
                    marks[name] = (at.agent_steps, level)
            panel = replace(panel, level=level, marks=marks)
        panels.append(panel)
    return panels


def saved_panels(summary: Summary) -> list[IntervalPanel]:
    """Return the agent steps saved, as shares of the budget: a panel a game, and one of means."""
    found: dict[str, dict[str, IntervalEstimate]] = {}
    for comparison in summary.comparisons:
        for game, effect in comparison.games.items():
            if effect.reference.learns and math.isfinite(effect.saved.value):
                found.setdefault(title_of(game), {})[comparison.initialization] = effect.saved
        over = comparison.over.get("all")
        if over is not None and len(over.games) > 1:
            mean = f"mean over {len(over.games)} games"
            found.setdefault(mean, {})[comparison.initialization] = over.saved
    budget = summary.evaluation.agent_steps
    shares = {
        title: {
            name: IntervalEstimate(*(each / budget for each in saved)) for name, saved in of.items()
        }
        for title, of in sorted(found.items(), key=lambda item: item[0].startswith("mean over"))
    }
    every = [each for of in shares.values() for share in of.values() for each in share]
    ends = [0.0, *filter(math.isfinite, every)]
    label = "agent steps saved,\nas a share of the budget"
    return [
        IntervalPanel(of, label, mark=0.0, title=title, span=(min(ends), max(ends)))
        for title, of in shares.items()
    ]


def agent_panels(summary: Summary) -> list[Panel]:
    """Return the raw return of every agent, by game."""

    def lines(name: str, game: Game) -> Iterable[NamedLine]:
        points = grid(game.reference.budget).tolist()
        runs = game.runs[name]
        for run, agents in enumerate(runs):
            which = f", run {run}" if len(runs) > 1 else ""
            for agent, curve in enumerate(agents.curves):
                label = f"{name}{which}, agent {agent}"
                yield label, Line(points, curve.tolist(), group=name)

    return _by_game(summary, lines, "return")


def profile_panels(summary: Summary) -> list[Panel]:
    """Return the performance profiles of final returns on the scale of the reference's gain."""
    scores: dict[str, list[FloatArray]] = {}
    for game in summary.games.values():
        for name, runs in game.runs.items():
            finals = np.concatenate([agents.final for agents in runs])
            finals = finals[np.isfinite(finals)]
            if game.scale is not None and len(finals):
                scores.setdefault(name, []).append(game.scale(finals))
    if not scores:
        return []
    every = np.concatenate([game for strata in scores.values() for game in strata])
    room = 0.05 * (float(np.ptp(every)) or 1.0)
    thresholds = np.linspace(every.min() - room, every.max() + room, THRESHOLDS)
    lines = {}
    for name, strata in scores.items():
        found = bootstrap(
            partial(performance_profile, thresholds=thresholds),
            strata,
            seed=derive_seed(0, Purpose.BOOTSTRAP, name, "profile"),
            resamples=PROFILE_RESAMPLES,
            bounds=(math.nan, math.nan),
        )
        lines[name] = Line(thresholds.tolist(), *(part.tolist() for part in found))
    return [Panel(lines, "final return τ, random's gain = 1", "share of agents above τ")]


def _by_game(
    summary: Summary, lines_of: Callable[[str, Game], Iterable[NamedLine]], y_label: str
) -> list[Panel]:
    found: Mapping[str, dict[str, Line]] = {
        name: {label: line for start in game.runs for label, line in lines_of(start, game)}
        for name, game in summary.games.items()
    }
    return [
        Panel(lines, "agent steps", y_label, title=title_of(game)) for game, lines in found.items()
    ]


def _mean_line(runs: Sequence[Agents], budget: int) -> Line:
    """Return the mean over runs with its band, over agents where there is one run."""
    units = (
        runs[0].curves
        if len(runs) == 1
        else np.array([mean_curve(agents.curves) for agents in runs])
    )
    points = grid(budget).tolist()
    mean = mean_curve(units)
    if len(units) == 1:
        return Line(points, mean.tolist())
    rng = np.random.default_rng(derive_seed(0, Purpose.BOOTSTRAP, "band"))
    drawn = units[rng.integers(0, len(units), (BAND_RESAMPLES, len(units)))].mean(axis=1)
    low, high = np.quantile(drawn, [TAIL, 1 - TAIL], axis=0)
    return Line(points, mean.tolist(), low.tolist(), high.tolist())
