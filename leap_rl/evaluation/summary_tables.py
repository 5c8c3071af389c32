"""A summary as the tables of a report."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from leap_rl.evaluation.page import Table
from leap_rl.evaluation.savings import SpeedUp
from leap_rl.evaluation.statistics import IntervalEstimate, shown
from leap_rl.evaluation.summary import Comparison, Game, Summary
from leap_rl.evaluation.verdict import about_reference, agent_steps, number, whole_tasks
from leap_rl.sharing.card import MOST, SAVED, SEEN
from leap_rl.training.rounds.evaluation_slots import RANDOM


def summary_tables(summary: Summary) -> list[Table]:
    """Return the tables: what is saved first, the fine print last and folded."""
    every = [
        ("Agent steps saved", _saved(summary), False, _SAVED),
        (
            "Agents from random starts" if summary.reference == RANDOM else "The reference",
            _references(summary),
            False,
            _REFERENCE,
        ),
        ("Means over games", _over(summary), False, _OVER),
        ("Initializations against each other", _contrasts(summary), True, _CONTRASTS),
        ("Fine print", _fine_print(summary), True, _FINE_PRINT),
        ("Interquartile means", _middles(summary), True, _MIDDLES),
    ]
    return [
        Table(title=title, rows=rows, says=says, folded=folded)
        for title, rows, folded, says in every
        if rows
    ]


def measured_rows(summary: Summary) -> list[dict[str, str]]:
    """Return the table of agent steps saved with its means over games, for a model card."""
    rows = _saved(summary)
    for comparison in summary.comparisons:
        for scope, over in comparison.over.items():
            if len(over.games) < 2 or (scope == "all" and len(comparison.over) > 1):
                continue
            seen = {comparison.games[game].seen for game in over.games}
            mean = {
                "initialization": comparison.initialization,
                "game": f"mean of {len(over.games)}",
                SEEN: _YES[seen.pop()] if len(seen) == 1 else "unknown",
                SAVED: _steps(over.saved),
                MOST: agent_steps(over.most),
                PAYS: _pays(comparison, comparison.pays_over(scope)),
            }
            rows.append({column: mean.get(column, "") for column in rows[0]})
    if len(summary.comparisons) == 1:
        rows = [{name: row[name] for name in row if name != "initialization"} for row in rows]
    return rows


PAYS = "pays from task"
_YES = {True: "yes", False: "no", None: "unknown"}
_SAVED = (
    "Agent steps that an agent spends at or above a level, beyond those that one of the reference "
    "does, averaged over the levels from the reference's first return to its final one; with 95 % "
    "intervals over runs and over the reference's agents. At most: what a start would save that is "
    "at the reference's end from the beginning. Final returns are means of the last tenth of the "
    "budget. Speed-up: how many times sooner agents come to half of what the reference gains."
)
_REFERENCE = (
    "What agent steps are measured by. The gain is from the first to the final return, with its "
    "95 % interval over agents; the noise is the error of the mean curve that the choice of "
    "episodes makes, as a share of the gain."
)
_OVER = (
    "Each game counts the same. Sign flips: how often chance signs make a mean so far from 0, over "
    "games."
)
_CONTRASTS = "Agent steps that the first saves more than the second, in the mean over games."
_FINE_PRINT = (
    "First return: ours less the reference's in the first tenth of the budget. Area: under the "
    "curve of returns, as a ratio. Reward rate: raw reward per 1,000 agent steps, in unfinished "
    "episodes too. Probability of improvement: that an agent's area is above one of the "
    "reference's (Agarwal et al. 2021); its interval is a bootstrap's, too narrow with few agents."
)
_MIDDLES = (
    "Of agents' areas under the curve of returns, where the reference begins at 0 and ends at 1, "
    "over games that it learns; with stratified bootstrap intervals (Agarwal et al. 2021)."
)


def _saved(summary: Summary) -> list[dict[str, str]]:
    return [
        {
            "initialization": comparison.initialization,
            "game": game,
            SEEN: _YES[effect.seen],
            SAVED: _steps(effect.saved) if effect.reference.learns else "–",
            MOST: agent_steps(effect.most) if effect.reference.learns else "–",
            "final return": _value(effect.final),
            f"{comparison.reference}'s": number(effect.reference.means.final),
            "speed-up to half of the gain": _times(effect.speed_ups.get(0.5)),
            PAYS: _pays(comparison, comparison.pays_in(game)),
        }
        for comparison in summary.comparisons
        for game, effect in comparison.games.items()
    ]


def _references(summary: Summary) -> list[dict[str, str]]:
    verdicts = {
        "sound": "sound",
        "no gain": "agents do not learn in this budget",
        "long episodes": "episodes are too long for this budget",
    }
    of_humans = any(game.human is not None for game in summary.games.values())
    return [
        {
            "game": name,
            "agents": str(len(game.reference.agents)),
            "first return": number(game.reference.means.first),
            "final return": number(game.reference.means.final),
            "gain": _value(game.reference.gain),
            "noise": f"{game.reference.noise:.0%}" if math.isfinite(game.reference.noise) else "–",
            **({"final, human-normalised": _human(game)} if of_humans else {}),
            "says": verdicts.get(game.reference.verdict)
            or str(about_reference(name, game.reference)).removeprefix(
                f"{name}: the reference is "
            ),
        }
        for name, game in summary.games.items()
    ]


def _over(summary: Summary) -> list[dict[str, str]]:
    kinds = {"all": "all", "seen": "trained on", "new": "never seen"}
    return [
        {
            "initialization": comparison.initialization,
            "games": f"{kinds[scope]} ({len(over.games)})",
            SAVED: _steps(over.saved),
            MOST: agent_steps(over.most),
            "sign flips": f"{over.sign_flip:.3f}",
        }
        for comparison in summary.comparisons
        for scope, over in comparison.over.items()
        if len(comparison.games) > 1
    ]


def _contrasts(summary: Summary) -> list[dict[str, str]]:
    return [
        {
            "initialization": contrast.ours,
            "against": contrast.theirs,
            "agent steps saved more": _steps(contrast.saved),
        }
        for contrast in summary.contrasts
    ]


def _fine_print(summary: Summary) -> list[dict[str, str]]:
    return [
        {
            "initialization": comparison.initialization,
            "game": game,
            "speed-up to 90 % of the gain": _times(effect.speed_ups.get(0.9)),
            "final return, difference": _value(effect.final_difference),
            "first return, difference": _value(effect.first_difference),
            "area, ratio": _ratio(effect.area_log_ratio),
            "reward rate": f"{number(effect.rate)} against {number(effect.reference.means.rate)}",
            "probability of improvement": shown(effect.improvement, ".2f"),
        }
        for comparison in summary.comparisons
        for game, effect in comparison.games.items()
    ]


def _middles(summary: Summary) -> list[dict[str, str]]:
    return [
        {"initialization": name, "interquartile mean": shown(found, ".2f")}
        for name, found in summary.middles.items()
    ]


def _human(game: Game) -> str:
    if game.human is None:
        return "–"
    return f"{game.human(np.array(game.reference.means.final)):.1%}"


def _pays(comparison: Comparison, pays: IntervalEstimate | None) -> str:
    if pays is None:
        return "not known to pay" if comparison.trained else "–"
    tasks, least, most = whole_tasks(pays)
    return f"{tasks:,} ({least:,} to {most:,})"


def _times(found: SpeedUp | None) -> str:
    if found is None:
        return "–"
    known = math.isfinite(found.low)
    interval = f" ({found.low:.1f} to {found.high:.1f})" if known else ""
    return f"{found.bound} ×{found.times:.1f}{interval}".strip()


def _ratio(found: IntervalEstimate | None) -> str:
    if found is None:
        return "–"
    value, low, high = (math.exp(each) if each < 700 else math.inf for each in found)
    return (
        f"{value:.2f}"
        if not 0 < low < high < math.inf
        else f"{value:.2f} ({low:.2f} to {high:.2f})"
    )


def _steps(found: IntervalEstimate) -> str:
    return _value(found, agent_steps)


def _value(found: IntervalEstimate, spelled: Callable[[float], str] = number) -> str:
    if math.isnan(found.value):
        return "–"
    value, low, high = map(spelled, found)
    return f"{value} ({low} to {high})" if math.isfinite(found.low) else value
