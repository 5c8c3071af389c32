"""What a summary says, in plain words: one sentence a comparison, and what to keep in mind."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Literal, TypeAlias

import numpy as np

from leap_rl.evaluation.measures import PAPER_WINDOW
from leap_rl.evaluation.statistics import CONFIDENCE, ENOUGH_SEEDS, Mean, what_seeds_can_say
from leap_rl.evaluation.summary import Comparison, GameSetting, Summary

Conclusion: TypeAlias = Literal["better", "worse", "open"]
MANY_COMPARISONS = 5
"""From here on it is worth saying that some intervals leave out 0 by chance."""


def conclusion_of(comparison: Comparison) -> Conclusion:
    """Return which side of 0 the area's interval over games lies on, or that it holds 0."""
    area = comparison.area_gain or comparison.area_difference
    if area is None or area.low <= 0 <= area.high:
        return "open"
    return "better" if area.low > 0 else "worse"


def verdict_of(comparison: Comparison) -> str:
    """Return in one sentence whether an initialization helps, and how sure one can be.

    Such as: "leap against random: better in 3 of 4 games; area under the curve +12 % (95 % interval
    -3 % to +27 %); with 3 seeds this is not enough to tell."
    """
    named = f"{comparison.initialization} against {comparison.reference}"
    area = comparison.area_gain or comparison.area_difference
    if area is None:
        return f"{named}: no pair of agents is finished, so nothing can be said."
    better = sum(game.area_difference.mean > 0 for game in comparison.games)
    count = len(comparison.games)
    where = f"better in {better} of {count} game{'s' * (count > 1)}"
    size = f"area under the curve {_shown(comparison, area)}"
    return f"{named}: {where}; {size}; {_certainty(comparison, area)}."


def notes_of(summary: Summary) -> list[str]:
    """Return what a reader of the summary should know, a sentence each; maybe none."""
    evaluation = summary.evaluation
    notes = []
    if not evaluation.complete:
        of_all = len(evaluation.initializations) * len(evaluation.games) * evaluation.seeds
        notes.append(
            f"{len(evaluation.curves)} of {of_all} agents are finished; all that is said is of "
            "these."
        )
    if len(evaluation.initializations) == 1:
        notes.append(f"{summary.reference} is the only initialization: nothing to set it against.")
    elif not summary.has_baseline:
        notes.append(
            f"Initializations are set against {summary.reference}, not against a random one: "
            "whether they help at all is not shown."
        )
    notes += _about_games(summary)
    if summary.comparisons:
        pairs = [comparison.pairs[0] for comparison in summary.comparisons]
        notes.append(what_seeds_can_say(min(pairs)))
        notes.append("Intervals speak of other seeds in these games, not of other games.")
    intervals = sum(len(comparison.games) for comparison in summary.comparisons)
    if intervals >= MANY_COMPARISONS:
        notes.append(
            f"Of {intervals} intervals of single games some {(1 - CONFIDENCE) * intervals:.1f} "
            "leave out 0 by chance alone: judge by all games together."
        )
    return notes


def _shown(comparison: Comparison, area: Mean) -> str:
    share = comparison.area_gain is not None
    scale, digits, unit = (100, 0, " %") if share else (1, 2, "")
    mean, low, high = (f"{scale * each:+.{digits}f}{unit}" for each in area[:3])
    if not share:
        mean += f" standard deviations of {comparison.reference}'s returns"
    if math.isinf(area.low):
        return mean
    return f"{mean} ({CONFIDENCE:.0%} interval {low} to {high})".replace("95%", "95 %")


def _certainty(comparison: Comparison, area: Mean) -> str:
    fewest, most = comparison.pairs
    seeds = _seeds(fewest, most)
    if math.isinf(area.low):
        return f"with {seeds} nothing says how much of it is chance"
    if area.low == area.high == 0:
        return f"with {seeds} no agent differs from its pair"
    if conclusion_of(comparison) == "open":
        return f"with {seeds} this is not enough to tell"
    if fewest < ENOUGH_SEEDS:
        return f"more than chance explains, but {seeds} are few"
    return f"with {seeds} more than chance explains"


def _seeds(fewest: int, most: int) -> str:
    if fewest == most:
        return "1 seed" if most == 1 else f"{most} seeds"
    return f"{fewest} to {most} seeds"


def _about_games(summary: Summary) -> Iterable[str]:
    played = {scores.game for scores in summary.scores}
    silent: dict[str, int] = {}
    for curve in summary.evaluation.curves:
        if not len(curve.returns):
            silent[curve.game] = silent.get(curve.game, 0) + 1
    for game, count in silent.items():
        agents = "1 agent that is" if count == 1 else f"{count} agents that are"
        yield f"{game}: {agents} finished without the end of an episode, and left out."
    settings = {game: each for game, each in summary.settings.items() if game in played}
    short = [f"{game} {each.window}" for game, each in settings.items() if _is_short(each)]
    if short:
        yield (
            f"Curves are means of fewer episodes than the paper's {PAPER_WINDOW}: "
            f"{', '.join(short)}."
        )
    for game, setting in settings.items():
        if setting.scale is not None and _all_equal(summary, game):
            yield (
                f"{game}: all returns of {summary.reference} are {setting.scale.zero:g}, so that "
                "normalised scores are raw points above that."
            )
    unknown = [game for game, each in settings.items() if each.human is None]
    if unknown:
        yield f"No human's score is known, so none is human-normalised: {', '.join(unknown)}."


def _is_short(setting: GameSetting) -> bool:
    return setting.window < PAPER_WINDOW


def _all_equal(summary: Summary, game: str) -> bool:
    curves = summary.evaluation.of(summary.reference, game)
    returns = np.concatenate([curve.returns for curve in curves])
    return bool(np.ptp(returns) == 0)
