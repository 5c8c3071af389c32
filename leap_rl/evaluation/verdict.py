"""A summary in sentences: a verdict on each comparison, and notes on its limits."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Literal, TypeAlias

from leap_rl.evaluation.measures import PAPER_WINDOW
from leap_rl.evaluation.statistics import (
    CONFIDENCE,
    ENOUGH_PAIRS,
    IntervalEstimate,
    shown,
    what_pairs_can_say,
)
from leap_rl.evaluation.summary import Comparison, Differences, Summary

Conclusion: TypeAlias = Literal["better", "worse", "open"]
MANY_COMPARISONS = 5
"""From so many on, a note says that some intervals leave out 0 by chance."""


def conclusion_of(comparison: Comparison) -> Conclusion:
    """Return on which side of 0 the primary effect's interval lies; "open" if it holds 0."""
    area = comparison.primary_effect
    if area is None or area.low <= 0 <= area.high:
        return "open"
    return "better" if area.low > 0 else "worse"


def verdict_of(comparison: Comparison) -> str:
    """Return in a few sentences whether an initialization helps, and how sure that is.

    Such as: "leap against random: better in 3 of 4 games; area under the curve +12 % (95 % interval
    -3 % to +27 %); with 3 runs of 5 seeds this is not enough to tell. Probability of improvement
    0.71 (0.48 to 0.90); interquartile mean of normalised areas 0.35 (0.10 to 0.60) against 0.02;
    final return not inferior: +0.10 standard deviations (-0.05 to +0.25), margin 0.12."
    """
    named = f"{comparison.initialization} against {comparison.reference}"
    found, area = comparison.over_games, comparison.primary_effect
    if found is None or area is None:
        return f"{named}: no pair of agents is finished, so nothing can be said."
    games = comparison.games.values()
    better = sum(game.area is not None and game.area.value > 0 for game in games)
    where = f"better in {better} of {len(games)} game{'s' * (len(games) > 1)}"
    size = f"area under the curve {_size(comparison, area, in_percent=found.gain is not None)}"
    return (
        f"{named}: {where}; {size}; {_certainty(comparison, area)}. "
        f"{_further(comparison, found)}.{_scope(comparison)}"
    )


def _final_conclusion(comparison: Comparison, final: IntervalEstimate) -> str:
    margin = comparison.final_margin
    if final.low > 0:
        return "better"
    if final.high < -margin:
        return "inferior"
    if margin == 0:
        return f"open, as {comparison.reference} gained nothing to set a margin by"
    return "not inferior" if final.low > -margin else "open"


def _further(comparison: Comparison, found: Differences) -> str:
    """Return what the primary effect leaves open: how often, how typical, the final return."""
    parts = [f"Probability of improvement {shown(found.improvement, '.2f')}"]
    middle = comparison.middle
    if middle is not None and comparison.reference_middle is not None:
        parts.append(
            f"interquartile mean of normalised areas {shown(middle, '.2f')} against "
            f"{comparison.reference_middle.value:.2f}"
        )
    final = found.final
    if final is None:
        parts.append("no pair has finished an episode, so nothing is known of the final return")
    else:
        ends = "" if math.isinf(final.low) else f" ({final.low:+.2f} to {final.high:+.2f})"
        margin = f", margin {comparison.final_margin:.2f}" if comparison.final_margin else ""
        parts.append(
            f"final return {_final_conclusion(comparison, final)}: {final.value:+.2f} standard "
            f"deviations{ends}{margin}"
        )
    return "; ".join(parts)


def _scope(comparison: Comparison) -> str:
    runs = {comparison.initialization: comparison.runs}
    runs[comparison.reference] = comparison.reference_runs or 0
    alone = [name for name, count in runs.items() if count == 1]
    if len(alone) == 2:
        return " This holds for this one run of each, not for their methods."
    return f" This holds for this one run of {alone[0]}, not for its method." if alone else ""


def notes_of(summary: Summary) -> list[str]:
    """Return the limits of a summary, a sentence each."""
    evaluation = summary.evaluation
    notes = []
    if not evaluation.complete:
        notes.append(
            f"{len(evaluation.curves)} of {evaluation.agents} agents are finished; all that is "
            "said is of these."
        )
    if len(evaluation.initializations) == 1:
        notes.append(f"{summary.reference} is the only initialization: nothing to set it against.")
    elif not (summary.has_baseline or evaluation.own_starts):
        notes.append(
            f"Initializations are set against {summary.reference}, not against a random one: "
            "whether they help at all is not shown."
        )
    notes += _about_games(summary)
    if summary.comparisons:
        notes += _about_runs(summary)
        fewest = min(_fewest_and_most(each)[0] for each in summary.comparisons)
        notes.append(what_pairs_can_say(fewest))
        notes.append("Intervals speak of other seeds in these games, not of other games.")
    intervals = sum(len(comparison.games) for comparison in summary.comparisons)
    if intervals >= MANY_COMPARISONS:
        notes.append(
            f"Of {intervals} intervals of single games some {(1 - CONFIDENCE) * intervals:.1f} "
            "leave out 0 by chance alone: judge by all games together."
        )
    return notes


def _size(comparison: Comparison, area: IntervalEstimate, *, in_percent: bool) -> str:
    scale, digits, unit = (100, 0, " %") if in_percent else (1, 2, "")
    mean, low, high = (f"{scale * each:+.{digits}f}{unit}" for each in area)
    if not in_percent:
        mean += f" standard deviations of {comparison.normalized_by}'s reward rates"
    return mean if math.isinf(area.low) else f"{mean} (95 % interval {low} to {high})"


def _fewest_and_most(comparison: Comparison) -> tuple[int, int]:
    counts = comparison.pairs.values()
    return min(counts, default=0), max(counts, default=0)


def _certainty(comparison: Comparison, area: IntervalEstimate) -> str:
    fewest, most = _fewest_and_most(comparison)
    seeds = f"{fewest} to {most} seeds" if fewest < most else f"{most} seed{'s' * (most > 1)}"
    if comparison.runs > 1:
        seeds = f"{comparison.runs} runs of {seeds}"
    if math.isinf(area.low):
        return f"with {seeds} nothing says how much of it is chance"
    if area.low == area.high == 0:
        return f"with {seeds} no agent differs from its pair"
    if conclusion_of(comparison) == "open":
        return f"with {seeds} this is not enough to tell"
    if fewest < ENOUGH_PAIRS:
        return f"more than chance explains, but {seeds} are few"
    return f"with {seeds} more than chance explains"


def _about_runs(summary: Summary) -> Iterable[str]:
    if several := [each.initialization for each in summary.comparisons if each.runs > 1]:
        yield (
            f"Intervals of {', '.join(dict.fromkeys(several))} speak of other runs of the same "
            "method too. With few runs those of the area and the final return stay honest; those "
            "of the probability of improvement and the interquartile mean are too narrow then."
        )
    if summary.evaluation.own_starts:
        yield (
            "A run's agents share one start, and so spread less than those of random starts even "
            "where nothing was learned: compare their bands with those of the runs' own starts."
        )


def _about_games(summary: Summary) -> Iterable[str]:
    for game in summary.settings:
        curves = [curve for curve in summary.evaluation.curves if curve.game == game]
        if silent := sum(len(curve.returns) == 0 for curve in curves):
            yield (
                f"{game}: {silent} of {len(curves)} agents finished no episode: these have an area "
                "but no final return."
            )
        if restarted := sum(curve.restarted for curve in curves):
            yield (
                f"{game}: {restarted} of {len(curves)} agents diverged and were restarted with "
                "another seed; comparisons leave out these and their pairs."
            )
    played = {curve.game for curve in summary.evaluation.curves}
    settings = {game: each for game, each in summary.settings.items() if game in played}
    windows = [(game, each.window) for game, each in settings.items()]
    if short := [f"{game} {window}" for game, window in windows if window < PAPER_WINDOW]:
        yield (
            f"Curves are means of fewer episodes than the paper's {PAPER_WINDOW}: "
            f"{', '.join(short)}."
        )
    for game, setting in settings.items():
        baseline = summary.evaluation.of(summary.reference, game)
        returns = {each for curve in baseline for each in curve.returns}
        if setting.scale is not None and len(returns) == 1:
            yield (
                f"{game}: all returns of {summary.reference} are {setting.scale.zero:g}, so that "
                "normalised scores are raw points above that."
            )
    if unknown := [game for game, each in settings.items() if each.human is None]:
        yield f"No human's score is known, so none is human-normalised: {', '.join(unknown)}."
