"""What an evaluation says, for programs: the document `estimates.json`, and rows of a table."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from leap_rl.evaluation.savings import SpeedUp
from leap_rl.evaluation.statistics import IntervalEstimate
from leap_rl.evaluation.summary import Comparison, Effect, Summary

ESTIMATES = (
    *("arm", "member", "measure", "estimate", "low", "high", "runs", "agents", "censored"),
)
"""The fields of a row."""


def estimates_document(summary: Summary, *, question: str = "") -> dict[str, Any]:
    """Return the estimates as plain values, None for what is not known.

    `members` are the games, each with `seen` (whether any initialization's meta-training saw it,
    None where not all are known) and its `reference`; `rows` are `estimate_rows`, whose member is
    `all`, `seen` or `new` where they are of means over members.
    """
    seen: dict[str, set[bool | None]] = {name: set() for name in summary.games}
    for comparison in summary.comparisons:
        for name, effect in comparison.games.items():
            seen[name].add(effect.seen)
    return {
        "question": question,
        "budget_agent_steps": summary.evaluation.agent_steps,
        "members": [
            {
                "name": name,
                "seen": True in seen[name] or (None if None in seen[name] else False),
                "reference": {
                    "m0": _number(game.reference.means.first),
                    "m1": _number(game.reference.means.final),
                    "low": _number(game.reference.gain.low),
                    "high": _number(game.reference.gain.high),
                    "noise": _number(game.reference.noise),
                    "verdict": game.reference.verdict,
                },
            }
            for name, game in summary.games.items()
        ],
        "rows": list(estimate_rows(summary)),
    }


def estimate_rows(summary: Summary) -> Iterable[dict[str, Any]]:
    """Yield a row for each arm, member and measure: its estimate, and its 95 % interval.

    Agent steps for `agent_steps_saved`, a share for `agent_steps_saved_share`, times for speed-ups,
    raw returns, natural logarithms, new tasks for `break_even_tasks`. `censored` is "at least" or
    "at most" where the estimate is a bound.
    """
    for comparison in summary.comparisons:
        for member, effect in comparison.games.items():
            counts = _counts(summary, comparison, [member])
            for measure, estimate, censored in _measures(comparison, member, effect):
                yield _row(comparison, member, measure, estimate, censored, counts)
        for scope, over in comparison.over.items():
            if not over.games:
                continue
            counts = _counts(summary, comparison, over.games)
            measures: dict[str, IntervalEstimate | None] = {
                "agent_steps_saved": over.saved,
                "agent_steps_saved_share": _share(over.saved, over.most),
                "break_even_tasks": comparison.pays_over(scope),
            }
            for measure, of_all in measures.items():
                if of_all is not None:
                    yield _row(comparison, scope, measure, of_all, "", counts)


def _counts(summary: Summary, comparison: Comparison, members: Sequence[str]) -> Mapping[str, int]:
    """Return the fewest runs, and agents of a run, in any of the members."""
    every = [summary.games[member].runs[comparison.initialization] for member in members]
    return {"runs": min(map(len, every)), "agents": min(len(run) for runs in every for run in runs)}


def _measures(
    comparison: Comparison, member: str, effect: Effect
) -> Iterable[tuple[str, IntervalEstimate, str]]:
    if effect.reference.learns:
        yield "agent_steps_saved", effect.saved, ""
        yield "agent_steps_saved_share", _share(effect.saved, effect.most), ""
    for share, found in effect.speed_ups.items():
        if found is not None:
            yield f"speed_up_{share:.0%}".rstrip("%"), _times(found), found.bound
    yield "final_return", effect.final, ""
    yield "final_return_difference", effect.final_difference, ""
    yield "jumpstart_difference", effect.first_difference, ""
    if effect.area_log_ratio is not None:
        yield "return_area_log_ratio", effect.area_log_ratio, ""
    if (pays := comparison.pays_in(member)) is not None:
        yield "break_even_tasks", pays, ""


def _share(saved: IntervalEstimate, most: float) -> IntervalEstimate:
    return IntervalEstimate(*(each / most if most > 0 else math.nan for each in saved))


def _times(found: SpeedUp) -> IntervalEstimate:
    return IntervalEstimate(found.times, found.low, found.high)


def _row(
    comparison: Comparison,
    member: str,
    measure: str,
    estimate: IntervalEstimate,
    censored: str,
    counts: Mapping[str, int],
) -> dict[str, Any]:
    return {
        "arm": comparison.initialization,
        "member": member,
        "measure": measure,
        "estimate": _number(estimate.value),
        "low": _number(estimate.low),
        "high": _number(estimate.high),
        **counts,
        "censored": censored,
    }


def _number(value: float) -> float | None:
    return float(value) if math.isfinite(value) else None
