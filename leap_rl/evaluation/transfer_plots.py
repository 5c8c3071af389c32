"""What an evaluation's plots show, as plain panels.

Dimensions: n agents, T points of a grid.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial

import numpy as np

from leap_rl.core.seeding import Purpose, derive_seed
from leap_rl.evaluation.comparison import normalized_scores
from leap_rl.evaluation.measures import grid, on_grid
from leap_rl.evaluation.plots import AnyPanel, IntervalPanel, Line, Panel, title_of
from leap_rl.evaluation.results import LearningCurve
from leap_rl.evaluation.statistics import Estimate, FloatArray, bootstrap, performance_profile
from leap_rl.evaluation.summary import Measure, Summary, Yardstick
from leap_rl.training.rounds.validation import RATE_UNIT

THRESHOLDS = 61
PROFILE_RESAMPLES = 2_000
"""As in Agarwal et al.'s own library: the band is of many points, and drawn."""
REWARD_POINTS = 20
BAND = 2.0
"""Standard deviations over seeds to each side: the paper's."""
YARDSTICKS: dict[Yardstick, str] = {
    "baseline": "baseline-normalised",
    "human": "human-normalised",
}
MEASURES: dict[Measure, str] = {
    "area": "area under the curve",
    "final": "final performance",
    "drawdown": "drawdown",
}


def evaluation_panels(summary: Summary) -> dict[str, Sequence[AnyPanel]]:
    """Return the panels of each plot; none where there is nothing to show."""
    return {
        "rewards": reward_panels(summary),
        "curves": mean_panels(summary),
        "seeds": seed_panels(summary),
        "scores": score_panels(summary),
        "differences": difference_panels(summary),
        "profile": profile_panels(summary),
    }


def reward_panels(summary: Summary) -> list[Panel]:
    """Return the mean rate of rewards over agents, by game: what the area is under.

    Rates are of some `REWARD_POINTS` parts of the budget. The band is as in `mean_panels`.
    """

    def line(name: str, game: str) -> Line | None:
        curves = summary.evaluation.of(name, game)
        if not curves:
            return None
        ends = curves[0].interval_ends
        parts = np.linspace(0, len(ends), REWARD_POINTS + 1)[1:]
        last = np.unique(np.ceil(parts).astype(int)) - 1
        earned = np.cumsum([curve.rewards for curve in curves], axis=1)[:, last]
        rates = RATE_UNIT * np.diff(earned, prepend=0) / np.diff(ends[last], prepend=0)
        return _mean_line(ends[last].tolist(), rates)

    return _by_game(summary, line, f"reward per {RATE_UNIT:,} agent steps")


def mean_panels(summary: Summary) -> list[Panel]:
    """Return the paper's figure: mean normalised score over agents, by game.

    The band is two standard deviations over agents to each side. A curve begins where every agent
    has finished an episode.
    """
    points = grid(summary.evaluation.agent_steps)

    def line(name: str, game: str) -> Line | None:
        setting = summary.settings[game]
        curves = [curve for curve in summary.evaluation.of(name, game) if len(curve.returns)]
        if not curves or setting.scale is None:
            return None
        raw = np.array([on_grid(curve, points, setting.window) for curve in curves])
        known = np.isfinite(raw).all(axis=0)
        return _mean_line(points[known].tolist(), setting.scale(raw[:, known]))

    return _by_game(summary, line, "normalised score")


def seed_panels(summary: Summary) -> list[Panel]:
    """Return the paper's other figure: the raw score of every agent, by game."""
    points = grid(summary.evaluation.agent_steps)
    panels = []
    for game, setting in summary.settings.items():
        lines = {
            _label(summary, curve): Line(
                points.tolist(), on_grid(curve, points, setting.window).tolist(), group=name
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
    for measure, yardstick in dict.fromkeys(key[1:] for key in summary.aggregates):
        rows = {
            name: summary.aggregates[name, measure, yardstick].interquartile_mean
            for name in summary.evaluation.initializations
            if (name, measure, yardstick) in summary.aggregates
        }
        label = f"interquartile mean,\n{YARDSTICKS[yardstick]}"
        panels.append(IntervalPanel(rows, label, title=MEASURES[measure]))
    return panels


def difference_panels(summary: Summary) -> list[IntervalPanel]:
    """Return how initializations differ from the reference: in area, final score and drawdown.

    One row a game and one for all games; a set of panels for each comparison. Scores are in
    deviations of the reference's reward rates or returns, the drawdown is a share.
    """
    panels = []
    for comparison in summary.comparisons:
        for measure, title in MEASURES.items():
            rows = {}
            for game, differences in comparison.games.items():
                scale = summary.settings[game].scale_of(measure)
                found: Estimate | None = getattr(differences, measure)
                if scale is not None and found is not None:
                    rows[title_of(game)] = Estimate(*(each / scale.unit for each in found))
            over_games: Estimate | None = getattr(comparison.over_games, measure, None)
            if over_games is not None:
                rows["all games"] = over_games
                unit = (
                    "share of what was gained" if measure == "drawdown" else "standard deviations"
                )
                panels.append(
                    IntervalPanel(
                        rows,
                        f"difference from {comparison.reference},\n{unit}",
                        mark=0.0,
                        title=f"{comparison.initialization}:\n{title}",
                        group=comparison.initialization,
                    )
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


def _by_game(
    summary: Summary, line_of: Callable[[str, str], Line | None], y_label: str
) -> list[Panel]:
    """Panels of an initialization's line in a game; games without lines are left out."""
    panels = []
    for game in summary.settings:
        found = {name: line_of(name, game) for name in summary.evaluation.initializations}
        lines = {name: line for name, line in found.items() if line is not None}
        if lines:
            panels.append(Panel(lines, "agent steps", y_label, title=title_of(game)))
    return panels


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
