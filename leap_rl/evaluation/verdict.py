"""A summary in sentences: a verdict on each comparison, and notes on its limits."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Literal, TypeAlias

from leap_rl.evaluation.savings import Reference
from leap_rl.evaluation.statistics import (
    CONFIDENCE,
    LEAST_AGENTS,
    LEAST_REFERENCE,
    IntervalEstimate,
)
from leap_rl.evaluation.summary import Comparison, Effect, Saved, Scope, Summary
from leap_rl.training.rounds.evaluation_slots import RANDOM

Conclusion: TypeAlias = Literal["helps", "hurts", "open", "cannot tell"]
MANY_COMPARISONS = 5
"""From so many on, a note says that some intervals leave out 0 by chance."""
FEW_RUNS = 2
"""Runs of a method that are few for a claim about it."""


def conclusion_of(saved: IntervalEstimate) -> Conclusion:
    """Return on which side of 0 the interval of the agent steps saved lies."""
    if not math.isfinite(saved.low + saved.high):
        return "cannot tell"
    if saved.low > 0:
        return "helps"
    return "hurts" if saved.high < 0 else "open"


def verdict_of(comparison: Comparison) -> str:
    """Return in two sentences what a start saves, and what that costs.

    Such as: "leap saves 72,000 of at most 90,000 agent steps a task (95 % interval 57,000 to
    87,000) in breakout; final return 29.4 against 19.2. Meta-training took 9.6 million agent steps,
    so it pays from the 138th new task on (111th to 169th); it was trained on this game."
    """
    name = comparison.initialization
    if "all" not in comparison.over:
        return (
            f"{name}: in no game did agents of it and of {comparison.reference} finish episodes, "
            "so nothing can be said."
        )
    if len(comparison.games) == 1:
        ((game, effect),) = comparison.games.items()
        return f"{name}{_in_game(comparison, game, effect)}"
    scopes: Sequence[Scope] = [scope for scope in ("seen", "new") if scope in comparison.over]
    parts = [_in_games(comparison, scope) for scope in scopes or ("all",)]
    said = f"{name} {'; '.join(parts)}; {_final_returns(comparison)}."
    pays = comparison.pays_over("new" if "new" in comparison.over else "all")
    return f"{said} {_cost(comparison, pays)}"


def best_of(summary: Summary) -> str | None:
    """Return which of several starts saves most, and by how much; none where there is one."""
    ranking = summary.ranking
    if ranking is None or ranking.lead is None:
        return None
    (first, over), (second, _) = list(ranking.saved.items())[:2]
    starts, games = len(ranking.saved), len(ranking.games)
    shared = f" in the {games} game{'s' * (games > 1)} that all have agents in"
    seen = " in games that it was trained on"
    new = " in games that it never saw"
    where = {"all": "", "seen": seen, "new": new, "shared": shared}[ranking.kind]
    concluded = {conclusion_of(each.saved) for each in ranking.saved.values()}
    if over.saved.value <= 0 or ("helps" not in concluded and concluded != {"cannot tell"}):
        return f"None of {starts} starts is seen to help{where}."
    value, low, high = ranking.lead
    beyond = "beyond chance" if low > 0 else "which may be chance"
    interval = f" ({agent_steps(low)} to {agent_steps(high)})" if math.isfinite(low) else ""
    return (
        f"Of {starts} starts {first} saves most{where}: {agent_steps(over.saved.value)} of at most "
        f"{agent_steps(over.most)} agent steps a task, {agent_steps(value)}{interval} more than "
        f"{second}, {beyond}."
    )


def agent_steps(value: float) -> str:
    """Return agent steps with three figures, and with a word for millions."""
    if not math.isfinite(value):
        return "–"
    digits = max(0, len(str(int(abs(value)))) - 3)
    rounded = round(value, -digits) + 0.0  # which is never -0
    for unit, word in ((1e9, "billion"), (1e6, "million")):
        if abs(rounded) >= unit:
            return f"{rounded / unit:.4g} {word}"
    return f"{rounded:,.0f}"


def saves(saved: IntervalEstimate, most: float) -> str:
    """Return what is saved in words: "saves 72,000 of at most 90,000 agent steps a task (...)"."""
    value, low, high = saved
    if value < 0:
        amount = f"costs {agent_steps(-value)} agent steps a task"
        low, high = -high, -low
    else:
        amount = f"saves {agent_steps(value)} of at most {agent_steps(most)} agent steps a task"
    interval = f" (95 % interval {agent_steps(low)} to {agent_steps(high)})"
    match conclusion_of(saved):
        case "helps":
            return f"{amount}{interval}"
        case "hurts":
            return f"does harm: it {amount}{interval}"
        case "open":
            return f"is not seen to help: it {amount}{interval}"
        case _:
            return f"{amount} (no interval)"


def about_reference(game: str, reference: Reference, name: str = RANDOM) -> str | None:
    """Return why a game's agent steps cannot be measured well; none where they can.

    Args:
        game: Its name.
        reference: What agents of the reference did in it.
        name: Which initialization that is.
    """
    whose = _agents_of(name)
    if reference.verdict == "long episodes":
        return f"{game}: episodes are too long for this budget; give agents more agent steps"
    if reference.verdict == "no gain":
        means, do = reference.means, "get worse" if reference.falls else "do not learn"
        return (
            f"{game}: {whose} {do} in this budget (return {number(means.first)} at first, "
            f"{number(means.final)} at the end), so that there is nothing to save; give agents "
            "more agent steps"
        )
    if reference.verdict == "uncertain":
        more = reference.more_agents
        several = "s" * (more != 1)
        agents = f"random agent{several}" if name == RANDOM else f"agent{several} of {name}"
        settle = f"{more} more {agents}" if more else f"more {agents} or agent steps"
        return f"{game}: the reference is uncertain; {settle} would settle it"
    return None


def _agents_of(reference: str) -> str:
    return "agents from random starts" if reference == RANDOM else f"agents of {reference}"


def number(value: float) -> str:
    """Return a return with the figures that tell it from others."""
    size = abs(value)
    return f"{value:,.{2 if size < 10 else 1 if size < 1000 else 0}f}"


def _in_game(comparison: Comparison, game: str, effect: Effect) -> str:
    returns = (
        f"final return {number(effect.final.value)} against "
        f"{number(effect.final.value - effect.final_difference.value)}"
    )
    if not effect.reference.learns:
        low, high = effect.final_difference.low, effect.final_difference.high
        interval = f" (difference {number(low)} to {number(high)})" if math.isfinite(low) else ""
        why = about_reference(game, effect.reference, comparison.reference)
        return f": {why}; {returns}{interval}."
    said = f" {saves(effect.saved, effect.most)} in {game}; {returns}."
    return f"{said} {_cost(comparison, comparison.pays_in(game))}"


def _in_games(comparison: Comparison, scope: Scope) -> str:
    over = comparison.over[scope]
    kinds: dict[Scope, str] = {
        "all": "",
        "seen": " that meta-training saw",
        "new": " that it did not see",
    }
    if not over.games:
        where = f" in games{kinds[scope]}" if kinds[scope] else ""
        found = {effect.reference.verdict for effect in comparison.effects(scope)}
        reasons = {
            "no gain": f"{_agents_of(comparison.reference)} gain nothing",
            "long episodes": "episodes are too long for this budget",
        }
        why = " or ".join(said for verdict, said in reasons.items() if verdict in found)
        why = why or "too few episodes ended"
        return f"cannot be measured by agent steps{where}, as {why}"
    games = f"{len(over.games)} game{'s' * (len(over.games) > 1)}{kinds[scope]}"
    where = f"in {games}" if len(over.games) == 1 else f"in the mean of {games}"
    return f"{saves(over.saved, over.most)} {where}{_where(comparison, over)}"


def _where(comparison: Comparison, over: Saved) -> str:
    effects = [comparison.games[game] for game in over.games]
    found = [conclusion_of(effect.saved) for effect in effects if effect.reference.learns]
    words = {"helps": "helps in", "hurts": "does harm in"}
    counts = [f"{words[word]} {found.count(word)}" for word in words if word in found]
    unlearned = {  # the mean counts them: none is left out by chance
        "no gain": f"{_agents_of(comparison.reference)} do not learn",
        "long episodes": "episodes are too long in",
    }
    references = [effect.reference.verdict for effect in effects]
    counts += [
        f"{said} {references.count(verdict)}"
        for verdict, said in unlearned.items()
        if verdict in references
    ]
    return f" ({', '.join(counts)})" if counts and len(effects) > 1 else ""


def _final_returns(comparison: Comparison) -> str:
    found = [effect.final_difference for effect in comparison.games.values()]
    if not any(math.isfinite(each.low) for each in found):
        higher = sum(each.value > 0 for each in found)
        return f"final returns are higher in {higher} of {len(found)} games, without intervals"
    higher, lower = sum(each.low > 0 for each in found), sum(each.high < 0 for each in found)
    return (
        f"final returns are higher in {higher} and lower in {lower} of {len(found)} games, beyond "
        "chance"
    )


def _cost(comparison: Comparison, pays: IntervalEstimate | None) -> str:
    parts, new = [], "new" in comparison.over
    seen = _seen(comparison)
    if comparison.trained is None:
        parts.append("What its meta-training took is not known")
    elif comparison.trained:
        took = f"Meta-training took {agent_steps(comparison.trained)} agent steps"
        if comparison.reference != RANDOM:
            parts.append(took)
        elif pays is None:
            parts.append(f"{took} and is not known to pay{' in new games' * new}")
        else:
            tasks, least, most = whole_tasks(pays)
            parts.append(
                f"{took}, so it pays from the {_ordinal(tasks)} new task on ({_ordinal(least)} to "
                f"{_ordinal(most)}){' in new games' * new}"
            )
    if seen:
        parts.append(seen)
    said = "; ".join(parts) + "."
    return said[0].upper() + said[1:]


def whole_tasks(pays: IntervalEstimate) -> Sequence[int]:
    """Return the task from which meta-training pays, counted from 1: estimate, least and most."""
    return [max(1, math.ceil(each)) for each in pays]


def _seen(comparison: Comparison) -> str:
    """Return whether meta-training saw the games; nothing where the means say it."""
    seen = {effect.seen for effect in comparison.games.values()}
    if len(seen) > 1 or None in seen:
        return ""
    what = "this game" if len(comparison.games) == 1 else "these games"
    return f"it was trained on {what}" if True in seen else f"it never saw {what}"


def _ordinal(value: int) -> str:
    tail = (
        "th" if value % 100 in (11, 12, 13) else {1: "st", 2: "nd", 3: "rd"}.get(value % 10, "th")
    )
    return f"{value:,}{tail}"


def notes_of(summary: Summary) -> list[str]:
    """Return the limits of a summary, a sentence each."""
    evaluation = summary.evaluation
    notes = []
    if not evaluation.complete:
        notes.append(
            f"{len(evaluation.curves)} of {evaluation.agents} agents are finished; all that is "
            "said is of these."
        )
    if not summary.comparisons:
        notes.append(f"{summary.reference} is the only initialization: nothing to set it against.")
    elif summary.reference != RANDOM:
        notes.append(
            f"Initializations are set against {summary.reference}, not against a random one: "
            "whether they help at all is not shown."
        )
        if len(evaluation.runs[summary.reference]) > 1:
            notes.append(f"Intervals hold for these runs of {summary.reference}, not for others.")
    # A verdict on a single game says the rest itself.
    several = len(summary.games) > 1 or len(summary.comparisons) != 1
    notes += [
        f"{said}."
        for name, game in summary.games.items()
        if (several or game.reference.learns)
        and (said := about_reference(name, game.reference, summary.reference))
    ]
    notes += _about_agents(summary)
    notes += _about_runs(summary)
    effects = [effect for each in summary.comparisons for effect in each.games.values()]
    intervals = sum(math.isfinite(effect.saved.low) for effect in effects)
    if intervals >= MANY_COMPARISONS:
        several = any(len(each.games) > 1 for each in summary.comparisons)
        of, instead = (" of single games", ": judge by all games together") if several else ("", "")
        notes.append(
            f"Of {intervals} intervals{of} some {(1 - CONFIDENCE) * intervals:.1f} leave out 0 by "
            f"chance alone{instead}."
        )
    return notes


def _about_runs(summary: Summary) -> Iterable[str]:
    comparisons = summary.comparisons
    if alone := [each.initialization for each in comparisons if each.runs == 1]:
        whose = "its method" if len(alone) == 1 else "their methods"
        yield f"This holds for one initialization of {', '.join(alone)}, not for {whose}."
    if few := [each.initialization for each in comparisons if each.runs == FEW_RUNS]:
        yield f"Two runs are few for a claim about a method: {', '.join(few)}."
    if any(
        len(effect.reference.agents) < LEAST_REFERENCE
        or min(map(len, summary.games[game].runs[each.initialization])) < LEAST_AGENTS
        for each in comparisons
        for game, effect in each.games.items()
    ):
        yield (
            f"Intervals take at least {LEAST_AGENTS} agents of each run and {LEAST_REFERENCE} of "
            f"{summary.reference}."
        )


def _about_agents(summary: Summary) -> Iterable[str]:
    if dropped := summary.evaluation.dropped:
        yield f"{dropped} of {summary.evaluation.agents} agents diverged and are left out."
    for game in summary.evaluation.games:
        curves = [curve for curve in summary.evaluation.curves if curve.game == game]
        if silent := sum(len(curve.returns) == 0 for curve in curves):
            yield (
                f"{game}: {silent} of {len(curves)} agents finished no episode; comparisons leave "
                "these out."
            )
        if restarted := sum(curve.restarted for curve in curves):
            yield (
                f"{game}: {restarted} of {len(curves)} agents diverged and were restarted with "
                "another seed; comparisons leave these out."
            )
