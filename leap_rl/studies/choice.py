"""New agents that choose among the starts of an arm that has a run for each member.

A new agent begins from each of M starts, and learns from them in turns: its first agent steps are
M probes of the same length. It goes on from the start whose episodes in the probe had the highest
mean return. So the choice takes nothing but what the agent has seen by then, and the agent steps
of the other probes are spent. Its curve is of all its episodes: those of all probes, then those of
the start that it chose, (M - 1) probes later than an agent that began from this start alone.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from typing import Final

import numpy as np

from leap_rl.evaluation.measures import LEAST_EPISODES, LEAST_PARTS, MOST_PARTS, PARTS
from leap_rl.evaluation.results import LearningCurve, read_evaluation
from leap_rl.evaluation.statistics import FloatArray
from leap_rl.runs.config import EvaluateConfig
from leap_rl.studies.cells import Cell

RULE: Final = (
    "Each member has a start of its own; together they learned from as many agent steps as the "
    "start of any other arm. A new agent learns from all of them in turns, for "
    f"{LEAST_PARTS / PARTS:.0%} of its budget, longer (to {MOST_PARTS / PARTS:.0%}) until it has "
    f"ended {LEAST_EPISODES} episodes from each, and goes on from the one with the highest mean "
    "return by then. Its curve has the episodes of all these probes, and the agent steps of those "
    "that are not chosen are charged: they are of its budget, and what was learned in them is "
    "lost. A schedule that goes by the budget has not ended then."
)


@dataclass(frozen=True, kw_only=True)
class Choice:
    """What a new agent chose."""

    member: str
    """The member whose start it goes on from."""
    charged: int
    """Agent steps that went to the other starts."""
    curve: LearningCurve
    """Of the agent, from its first probe on, with its arm and the arm's run."""


def read_choices(cells: Sequence[Cell]) -> Iterator[Choice]:
    """Yield what new agents chose, where the cells of all their starts are finished.

    Raises:
        RunFolderError: A cell's folder is damaged.
    """
    for arm, run, starts in _finished_groups(cells):
        found: dict[tuple[str, int], dict[str, LearningCurve]] = {}
        for member, cell in starts.items():
            for curve in read_evaluation(cell.folder).curves:
                found.setdefault((curve.game, curve.seed), {})[member] = curve
        budget = next(iter(starts.values())).config.task.agent_steps
        for curves in found.values():
            if len(curves) < len(starts):
                continue  # one was dropped, and with it what the agent saw in its probe
            member, charged, curve = choose(curves, budget)
            curve = replace(curve, initialization=arm, run=run)
            yield Choice(member=member, charged=charged, curve=curve)


def agents_that_choose(cells: Iterable[Cell]) -> Counter[tuple[str, int]]:
    """Return how many choose in finished cells, by arm and run; those that were dropped count."""
    counts: Counter[tuple[str, int]] = Counter()
    for arm, run, starts in _finished_groups(cells):
        config = next(iter(starts.values())).config
        assert isinstance(config, EvaluateConfig)
        counts[arm, run] += config.seeds * len(config.task.resolved_games)
    return counts


def _finished_groups(cells: Iterable[Cell]) -> Iterator[tuple[str, int, dict[str, Cell]]]:
    """Yield an arm, a run, and by member the cells of new agents from that member's start."""
    some = [cell for cell in cells if cell.alone is not None and cell.members is not None]
    some.sort(key=_group)  # which keeps the members' order
    for (arm, run, _), group in groupby(some, key=_group):
        starts = {cell.alone or "": cell for cell in group}
        if all(cell.finished for cell in starts.values()):
            yield arm, run, starts


def _group(cell: Cell) -> tuple[str, int, str]:
    return cell.arm, cell.run, cell.members or ""


def choose(starts: Mapping[str, LearningCurve], budget: int) -> tuple[str, int, LearningCurve]:
    """Return which start a new agent goes on from, what was charged, and the agent's curve.

    Args:
        starts: By member, the curve of the agent that learns from this member's start alone, for
            the whole budget. One that diverged later is among them, as its probe does not show
            it; one that diverged within its probe is judged by its restart's.
        budget: Agent steps of the new agent.

    Returns:
        The member, the agent steps that went to the other starts, and the curve, restarted if the
        start's is. Of starts that are as good as each other the first is taken; one without an
        episode in its probe is taken where none has any.
    """
    curves = list(starts.values())
    probe = _probe(curves, budget)
    means = [_mean_return(curve, probe) for curve in curves]
    best = int(np.argmax(means))
    charged = (len(curves) - 1) * probe
    return list(starts)[best], charged, _in_turns(curves, best, probe, budget)


def _probe(curves: Sequence[LearningCurve], budget: int) -> int:
    """Return the agent steps of each start's probe: the fewest in which all end some episodes."""
    for parts in range(LEAST_PARTS, MOST_PARTS):
        probe = budget * parts // (PARTS * len(curves))
        ended = [np.searchsorted(curve.agent_steps, probe, side="right") for curve in curves]
        if min(ended) >= LEAST_EPISODES:
            return probe
    return budget * MOST_PARTS // (PARTS * len(curves))


def _mean_return(curve: LearningCurve, until: int) -> float:
    returns = curve.returns[curve.agent_steps <= until]
    return float(returns.mean()) if len(returns) else -np.inf


def _in_turns(curves: Sequence[LearningCurve], best: int, probe: int, budget: int) -> LearningCurve:
    """Return the curve of an agent that learns from all starts, then from one of them."""
    chosen, count = curves[best], len(curves)
    charged = (count - 1) * probe
    later = chosen.agent_steps + charged
    parts = [
        *((count * each.agent_steps, each.returns, each.agent_steps <= probe) for each in curves),
        (later, chosen.returns, (chosen.agent_steps > probe) & (later <= budget)),
    ]
    agent_steps = np.concatenate([steps[there] for steps, _, there in parts])
    returns = np.concatenate([returns[there] for _, returns, there in parts])
    order = np.argsort(agent_steps, kind="stable")
    ends = chosen.interval_ends
    turns = np.minimum(ends / count, probe)
    earned = [_earned(each, turns) for each in curves]
    earned[best] = _earned(chosen, np.where(ends > count * probe, ends - charged, turns))
    return replace(
        chosen,
        agent_steps=agent_steps[order],
        returns=returns[order],
        rewards=np.diff(np.sum(earned, axis=0), prepend=0.0),
    )


def _earned(curve: LearningCurve, at: FloatArray) -> FloatArray:
    """Return the rewards up to some agent steps, evenly earned within an interval."""
    sums = np.cumsum(curve.rewards)
    return np.asarray(np.interp(at, [0, *curve.interval_ends], [0.0, *sums]))
