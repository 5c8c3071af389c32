"""What a summary says, in plain words: a verdict on each comparison, and what to keep in mind."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Literal, TypeAlias

import numpy as np

from leap_rl.evaluation.measures import PAPER_WINDOW
from leap_rl.evaluation.statistics import CONFIDENCE, ENOUGH_SEEDS, Mean, what_seeds_can_say
from leap_rl.evaluation.summary import Comparison, GameSetting, Summary
from leap_rl.evaluation.summary_tables import interval

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
    """Return in a few sentences whether an initialization helps, and how sure one can be.

    Such as: "leap against random: better in 3 of 4 games; area under the curve +12 % (95 % interval
    -3 % to +27 %); with 3 runs of 5 seeds this is not enough to tell. Probability of improvement
    0.71 (0.48 to 0.90); interquartile mean of normalised areas 0.35 (0.10 to 0.60) against 0.02;
    final return not inferior: +0.10 standard deviations (-0.05 to +0.25), margin 0.12."
    """
    named = f"{comparison.initialization} against {comparison.reference}"
    area = comparison.area_gain or comparison.area_difference
    if area is None:
        return f"{named}: no pair of agents is finished, so nothing can be said."
    better = sum(game.area_difference.mean > 0 for game in comparison.games)
    count = len(comparison.games)
    where = f"better in {better} of {count} game{'s' * (count > 1)}"
    size = f"area under the curve {_shown(comparison, area)}"
    return (
        f"{named}: {where}; {size}; {_certainty(comparison, area)}. {_further(comparison)}."
        f"{_scope(comparison)}"
    )


def final_conclusion(comparison: Comparison) -> str:
    """Return what the final returns' interval says of the margin: "not inferior", for example."""
    final, margin = comparison.final_difference, comparison.final_margin
    assert final is not None, "nothing is concluded from no pair"
    if final.low > 0:
        return "better"
    if final.high < -margin:
        return "inferior"
    if margin == 0:
        return f"open, as {comparison.reference} gained nothing to set a margin by"
    return "not inferior" if final.low > -margin else "open"


def _further(comparison: Comparison) -> str:
    """What the area's mean does not say: how often, how typical, and what it costs in the end."""
    parts = []
    improvement, middle = comparison.improvement, comparison.middle
    if improvement is not None:
        parts.append(f"Probability of improvement {interval(improvement, 2)}")
    if middle is not None and comparison.reference_middle is not None:
        parts.append(
            f"interquartile mean of normalised areas {interval(middle, 2)} against "
            f"{comparison.reference_middle.value:.2f}"
        )
    final = comparison.final_difference
    if final is None:
        parts.append("no pair has finished an episode, so nothing is known of the final return")
    else:
        ends = "" if math.isinf(final.low) else f" ({final.low:+.2f} to {final.high:+.2f})"
        margin = f", margin {comparison.final_margin:.2f}" if comparison.final_margin else ""
        parts.append(
            f"final return {final_conclusion(comparison)}: {final.mean:+.2f} standard "
            f"deviations{ends}{margin}"
        )
    return "; ".join(parts)


def _scope(comparison: Comparison) -> str:
    """A sentence where only one run speaks for a method."""
    ours, theirs = comparison.runs == 1, comparison.reference_runs == 1
    if ours and theirs:
        return " This holds for this one run of each, not for their methods."
    if ours or theirs:
        name = comparison.initialization if ours else comparison.reference
        return f" This holds for this one run of {name}, not for its method."
    return ""


def notes_of(summary: Summary) -> list[str]:
    """Return what a reader of the summary should know, a sentence each; maybe none."""
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
        notes.append(what_seeds_can_say(min(each.seeds[0] for each in summary.comparisons)))
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
        mean += f" standard deviations of {comparison.normalized_by}'s reward rates"
    if math.isinf(area.low):
        return mean
    return f"{mean} ({CONFIDENCE:.0%} interval {low} to {high})".replace("95%", "95 %")


def _certainty(comparison: Comparison, area: Mean) -> str:
    fewest, most = comparison.seeds
    seeds = _seeds(fewest, most)
    if comparison.runs > 1:
        seeds = f"{comparison.runs} runs of {seeds}"
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


def _about_runs(summary: Summary) -> Iterable[str]:
    several = [each.initialization for each in summary.comparisons if each.runs > 1]
    if several:
        yield (
            f"Intervals of {', '.join(dict.fromkeys(several))} speak of other runs of the same "
            "method too. With few runs those of the area and the final return stay honest; those "
            "of the probability of improvement and the interquartile mean are too narrow then."
        )
    if summary.evaluation.own_starts:
        yield (
            "A run's agents share one start, and so spread less than those of random starts even "
            "where nothing was learned: judge the spread by the comparisons with the runs' own "
            "starts."
        )


def _about_games(summary: Summary) -> Iterable[str]:
    played = {scores.game for scores in summary.scores}
    for game in summary.settings:
        agents = [
            agent
            for name in summary.evaluation.initializations
            for agent in summary.agents[name, game]
        ]
        if silent := sum(agent.episodes == 0 for agent in agents):
            has = "1 agent has" if silent == 1 else f"{silent} agents have"
            yield f"{game}: {has} finished no episode, and so an area but no final return."
        if restarted := sum(agent.restarted for agent in agents):
            began = "1 agent" if restarted == 1 else f"{restarted} agents"
            yield (
                f"{game}: {began} diverged and began again with another seed; what is compared "
                "leaves out these and the agents of the same seeds that they were paired with."
            )
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
