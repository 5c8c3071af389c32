"""The figures of an evaluation: what is drawn, as plain panels, and the files.

Dimensions: n agents, T points of a grid.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import partial
from pathlib import Path

import numpy as np

from leap_rl.evaluation.comparison import normalized_scores
from leap_rl.evaluation.measures import RATE_UNIT, grid, on_grid
from leap_rl.evaluation.plots import AnyPanel, IntervalPanel, Line, Panel, draw
from leap_rl.evaluation.results import LearningCurve
from leap_rl.evaluation.statistics import (
    FloatArray,
    bootstrap_curve,
    performance_profile,
)
from leap_rl.evaluation.summary import Measure, Summary, Yardstick
from leap_rl.seeding import Purpose, derive_seed

COLUMNS = 3
THRESHOLDS = 61
PROFILE_RESAMPLES = 2_000
"""As in Agarwal et al.'s own library: the band is of many points, and drawn."""
REWARD_POINTS = 20
BAND = 2.0
"""Standard deviations over seeds to each side: the paper's."""
NAMES: dict[Yardstick, str] = {"baseline": "baseline-normalised", "human": "human-normalised"}
DIFFERENCES = {
    "area_difference": ("area under the curve", True),
    "final_difference": ("final performance", True),
    "drawdown_difference": ("drawdown", False),
}
"""Fields of a comparison: their names, and whether they are scores."""
MEASURE_NAMES: dict[Measure, str] = {"area": "area under the curve", "final": "final performance"}


def draw_transfer_figures(summary: Summary, folder: Path, *, seed: int = 0) -> list[Path]:
    """Draw all figures of an evaluation for which there are agents, and return their files.

    Args:
        summary: Of the evaluation.
        folder: Where they go: `rewards`, `curves`, `seeds`, `scores`, `differences` and
            `profile`, each in every format.
        seed: Of the profile's bootstrap.
    """
    figures: list[tuple[str, list[AnyPanel], int]] = [
        ("rewards", [*reward_panels(summary)], COLUMNS),
        ("curves", [*mean_panels(summary)], COLUMNS),
        ("seeds", [*seed_panels(summary)], COLUMNS),
        ("scores", [*score_panels(summary)], 2),
        ("differences", [*difference_panels(summary)], COLUMNS),
        ("profile", [*profile_panels(summary, seed=seed)], 2),
    ]
    files = []
    for name, panels, columns in figures:
        if panels:
            names = summary.evaluation.initializations
            files += draw(panels, folder / name, columns=columns, names=names)
    return files


def reward_panels(summary: Summary) -> list[Panel]:
    """Return the mean rate of rewards over agents, by game: what the area is under.

    Rates are of some `REWARD_POINTS` parts of the budget. The band is as in :func:`mean_panels`.
    """
    panels = []
    for game in summary.settings:
        lines = {}
        for name in summary.evaluation.initializations:
            curves = summary.evaluation.of(name, game)
            if not curves:
                continue
            ends = curves[0].interval_ends
            parts = np.linspace(0, len(ends), REWARD_POINTS + 1)[1:]
            last = np.unique(np.ceil(parts).astype(int)) - 1
            earned = np.cumsum([curve.rewards for curve in curves], axis=1)[:, last]
            rates = RATE_UNIT * np.diff(earned, prepend=0) / np.diff(ends[last], prepend=0)
            lines[name] = _mean_line(ends[last].tolist(), rates)
        if lines:
            label = f"reward per {RATE_UNIT:,} agent steps"
            panels.append(Panel(lines, "agent steps", label, title=title_of(game)))
    return panels


def mean_panels(summary: Summary) -> list[Panel]:
    """Return the paper's figure: mean normalised score over agents, by game.

    The band is two standard deviations over agents to each side. A curve begins where every agent
    has finished an episode.
    """
    panels = []
    for game, setting in summary.settings.items():
        lines = {}
        for name in summary.evaluation.initializations:
            curves = _curves(summary, name, game)
            if not len(curves) or setting.scale is None:
                continue
            known = np.isfinite(curves).all(axis=0)
            scores = setting.scale(curves[:, known])
            x = grid(summary.evaluation.agent_steps)[known].tolist()
            lines[name] = _mean_line(x, scores)
        if lines:
            panels.append(Panel(lines, "agent steps", "normalised score", title=title_of(game)))
    return panels


def seed_panels(summary: Summary) -> list[Panel]:
    """Return the paper's other figure: the raw score of every agent, by game."""
    panels = []
    points = grid(summary.evaluation.agent_steps)
    x = points.tolist()
    for game in summary.settings:
        lines = {
            _label(summary, curve): Line(
                x, on_grid(curve, points, summary.settings[game].window).tolist(), group=name
            )
            for name in summary.evaluation.initializations
            for curve in summary.evaluation.of(name, game)
            if len(curve.returns)
        }
        if lines:
            panels.append(Panel(lines, "agent steps", "score", title=title_of(game)))
    return panels


def score_panels(summary: Summary) -> list[IntervalPanel]:
    """Return the interquartile mean over games of each initialization, by measure and yardstick."""
    panels = []
    for yardstick, yardstick_name in NAMES.items():
        for measure, measure_name in MEASURE_NAMES.items():
            rows: dict[str, tuple[float, float, float]] = {
                found.initialization: found.interquartile_mean
                for found in summary.aggregates
                if (found.measure, found.yardstick) == (measure, yardstick)
            }
            if rows:
                label = f"interquartile mean,\n{yardstick_name}"
                panels.append(IntervalPanel(rows, label, title=measure_name))
    return panels


def difference_panels(summary: Summary) -> list[IntervalPanel]:
    """Return how initializations differ from the reference: in area, final score and drawdown.

    One row a game and one for all games; a set of panels for each comparison. Scores are in
    deviations of the reference's reward rates or returns, the drawdown is a share.
    """
    panels = []
    for comparison in summary.comparisons:
        for field, (what, is_score) in DIFFERENCES.items():
            rows: dict[str, tuple[float, float, float]] = {}
            for game in comparison.games:
                setting, found = summary.settings[game.game], getattr(game, field)
                scale = setting.reward_scale if field == "area_difference" else setting.scale
                if scale is not None and found is not None:
                    unit = scale.unit if is_score else 1.0
                    mean, low, high = (each / unit for each in found[:3])
                    rows[title_of(game.game)] = mean, low, high
            over_games = getattr(comparison, field)
            if over_games is not None:
                rows["all games"] = over_games[:3]
                unit_name = "standard deviations" if is_score else "share of what was gained"
                panels.append(
                    IntervalPanel(
                        rows,
                        f"difference from {comparison.reference},\n{unit_name}",
                        mark=0.0,
                        title=f"{comparison.initialization}:\n{what}",
                        group=comparison.initialization,
                    )
                )
    return panels


def profile_panels(summary: Summary, *, seed: int = 0) -> list[Panel]:
    """Return the performance profiles of final performance, by yardstick."""
    panels = []
    for yardstick, yardstick_name in NAMES.items():
        scores = {
            name: list(normalized_scores(summary, name, "final", yardstick).values())
            for name in summary.evaluation.initializations
        }
        scores = {name: strata for name, strata in scores.items() if strata}
        if not scores:
            continue
        every = np.concatenate([game.ravel() for strata in scores.values() for game in strata])
        room = 0.05 * (float(np.ptp(every)) or 1.0)
        thresholds = np.linspace(every.min() - room, every.max() + room, THRESHOLDS)
        lines = {}
        for name, strata in scores.items():
            path = derive_seed(seed, Purpose.BOOTSTRAP, name, "profile", yardstick)
            found = bootstrap_curve(
                strata,
                partial(performance_profile, thresholds=thresholds),
                seed=path,
                resamples=PROFILE_RESAMPLES,
                bounds=(math.nan, math.nan),
            )
            lines[name] = Line(thresholds.tolist(), *(part.tolist() for part in found))
        x_label = f"{yardstick_name} final score τ"
        panels.append(Panel(lines, x_label, "share of agents above τ"))
    return panels


def title_of(game: str) -> str:
    """Return a game's name as a title."""
    return game.replace("_", " ").title() if game.islower() else game


def _label(summary: Summary, curve: LearningCurve) -> str:
    runs = summary.evaluation.runs[curve.initialization]
    run = f", {runs[curve.run]}" if len(runs) > 1 else ""
    return f"{curve.initialization}{run}, seed {curve.seed}"


def _mean_line(x: Sequence[float], values: FloatArray) -> Line:
    """The mean over agents of their values, [n, T], with its band."""
    mean = values.mean(axis=0)
    if len(values) == 1:
        return Line(x, mean.tolist())
    deviation = BAND * values.std(axis=0, ddof=1)
    return Line(x, mean.tolist(), (mean - deviation).tolist(), (mean + deviation).tolist())


def _curves(summary: Summary, initialization: str, game: str) -> FloatArray:
    """Raw curves on the grid of the agents that finished an episode, [n, T]."""
    points, window = grid(summary.evaluation.agent_steps), summary.settings[game].window
    curves = [
        on_grid(curve, points, window)
        for curve in summary.evaluation.of(initialization, game)
        if len(curve.returns)
    ]
    return np.array(curves).reshape(len(curves), len(points))
