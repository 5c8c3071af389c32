"""Panels of an evaluation's plots; a list is empty where there is nothing to show.

Dimensions: n agents, T points of a grid.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial

import numpy as np

from leap_rl.core.seeding import Purpose, derive_seed
from leap_rl.evaluation.comparison import normalized_scores
from leap_rl.evaluation.measures import grid, on_grid
from leap_rl.evaluation.plots import IntervalPanel, Line, Panel, title_of
from leap_rl.evaluation.statistics import (
    FloatArray,
    IntervalEstimate,
    bootstrap,
    performance_profile,
)
from leap_rl.evaluation.summary import Measure, Summary, Yardstick
from leap_rl.training.rounds.validation import RATE_UNIT

THRESHOLDS = 61
PROFILE_RESAMPLES = 2_000
"""As in Agarwal et al.'s own library: the band is of many points, and drawn."""
REWARD_POINTS = 20
BAND = 2.0
"""Standard deviations over agents to each side: the paper's."""
YARDSTICKS: dict[Yardstick, str] = {
    "baseline": "baseline-normalised",
    "human": "human-normalised",
}
MEASURES: dict[Measure, tuple[str, str]] = {
    "area": ("area under the curve", "standard deviations"),
    "final": ("final performance", "standard deviations"),
    "drawdown": ("drawdown", "share of what was gained"),
}
"""Title and unit of differences."""

NamedLine = tuple[str, Line]


def reward_panels(summary: Summary) -> list[Panel]:
    """Return the mean rate of rewards over agents, by game: what the area is under.

    Rates are of some `REWARD_POINTS` parts of the budget. The band is as in `mean_panels`.
    """

    def lines(name: str, game: str) -> Iterable[NamedLine]:
        if curves := summary.evaluation.of(name, game):
            ends = curves[0].interval_ends
            parts = np.linspace(0, len(ends), REWARD_POINTS + 1)[1:]
            last = np.unique(np.ceil(parts).astype(int)) - 1
            earned = np.cumsum([curve.rewards for curve in curves], axis=1)[:, last]
            rates = RATE_UNIT * np.diff(earned, prepend=0) / np.diff(ends[last], prepend=0)
            yield name, _mean_line(ends[last].tolist(), rates)

    return _by_game(summary, lines, f"reward per {RATE_UNIT:,} agent steps")


def mean_panels(summary: Summary) -> list[Panel]:
    """Return the paper's figure: mean normalised score over agents, by game.

    The band is two standard deviations over agents to each side. A curve begins where every agent
    has finished an episode.
    """
    points = grid(summary.evaluation.agent_steps)

    def lines(name: str, game: str) -> Iterable[NamedLine]:
        setting = summary.settings[game]
        curves = [curve for curve in summary.evaluation.of(name, game) if len(curve.returns)]
        if curves and setting.scale is not None:
            raw = np.array([on_grid(curve, points, setting.window) for curve in curves])
            known = np.isfinite(raw).all(axis=0)
            yield name, _mean_line(points[known].tolist(), setting.scale(raw[:, known]))

    return _by_game(summary, lines, "normalised score")


def agent_panels(summary: Summary) -> list[Panel]:
    """Return the paper's other figure: the raw score of every agent, by game."""
    points = grid(summary.evaluation.agent_steps)

    def lines(name: str, game: str) -> Iterable[NamedLine]:
        runs, window = summary.evaluation.runs[name], summary.settings[game].window
        for curve in summary.evaluation.of(name, game):
            if len(curve.returns):
                run = f", {runs[curve.run]}" if len(runs) > 1 else ""
                scores = on_grid(curve, points, window).tolist()
                yield f"{name}{run}, seed {curve.seed}", Line(points.tolist(), scores, group=name)

    return _by_game(summary, lines, "score")


def _by_game(
    summary: Summary, lines_of: Callable[[str, str], Iterable[NamedLine]], y_label: str
) -> list[Panel]:
    names = summary.evaluation.initializations
    found: Mapping[str, dict[str, Line]] = {
        game: {label: line for name in names for label, line in lines_of(name, game)}
        for game in summary.settings
    }
    return [
        Panel(lines, "agent steps", y_label, title=title_of(game))
        for game, lines in found.items()
        if lines
    ]


def _mean_line(x: Sequence[float], values: FloatArray) -> Line:
    """Return the mean over agents of their values, [n, T], with its band."""
    mean = values.mean(axis=0)
    if len(values) == 1:
        return Line(x, mean.tolist())
    deviation = BAND * values.std(axis=0, ddof=1)
    return Line(x, mean.tolist(), (mean - deviation).tolist(), (mean + deviation).tolist())


def score_panels(summary: Summary) -> list[IntervalPanel]:
    """Return the interquartile mean over games of each initialization, by measure and yardstick."""
    panels = []
    for measure, yardstick in dict.fromkeys(key[1:] for key in summary.aggregates):
        rows = {
            name: summary.aggregates[name, measure, yardstick].interquartile_mean
            for name in summary.evaluation.initializations
            if (name, measure, yardstick) in summary.aggregates
        }
        label = f"interquartile mean,\n{YARDSTICKS[yardstick]}"
        panels.append(IntervalPanel(rows, label, title=MEASURES[measure][0]))
    return panels


def difference_panels(summary: Summary) -> list[IntervalPanel]:
    """Return how initializations differ from the reference: in area, final score and drawdown.

    One row a game and one for all games; a set of panels for each comparison. Scores are in
    deviations of the reference's reward rates or returns, the drawdown is a share.
    """
    panels = []
    for comparison in summary.comparisons:
        for measure, (title, unit) in MEASURES.items():
            rows = {}
            for game, differences in comparison.games.items():
                scale = summary.settings[game].scale_of(measure)
                found: IntervalEstimate | None = getattr(differences, measure)
                if scale is not None and found is not None:
                    rows[title_of(game)] = IntervalEstimate(*(each / scale.unit for each in found))
            over_games: IntervalEstimate | None = getattr(comparison.over_games, measure, None)
            if over_games is not None:
                label = f"difference from {comparison.reference},\n{unit}"
                name = comparison.initialization
                rows["all games"] = over_games
                panels.append(
                    IntervalPanel(rows, label, mark=0.0, title=f"{name}:\n{title}", group=name)
                )
    return panels


def profile_panels(summary: Summary) -> list[Panel]:
    """Return the performance profiles of final performance, by yardstick."""
    panels = []
    for yardstick, yardstick_name in YARDSTICKS.items():
        by_name = {
            name: list(normalized_scores(summary, name, "final", yardstick).values())
            for name in summary.evaluation.initializations
        }
        scores = {name: strata for name, strata in by_name.items() if strata}
        if not scores:
            continue
        every = np.concatenate([game.ravel() for strata in scores.values() for game in strata])
        room = 0.05 * (float(np.ptp(every)) or 1.0)
        thresholds = np.linspace(every.min() - room, every.max() + room, THRESHOLDS)
        lines = {}
        for name, strata in scores.items():
            found = bootstrap(
                partial(performance_profile, thresholds=thresholds),
                strata,
                seed=derive_seed(0, Purpose.BOOTSTRAP, name, "profile", yardstick),
                resamples=PROFILE_RESAMPLES,
                bounds=(math.nan, math.nan),
            )
            lines[name] = Line(thresholds.tolist(), *(part.tolist() for part in found))
        x_label = f"{yardstick_name} final score τ"
        panels.append(Panel(lines, x_label, "share of agents above τ"))
    return panels
