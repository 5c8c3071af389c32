"""The measure of evaluations once more: plain loops over floats, slow and literal.

An agent is a list of (agent steps, return) of its episodes; a run is a list of agents.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache

from scipy import stats

Agent = tuple[tuple[float, float], ...]
Curve = list[float | None]
Statistic = Callable[["Side", "Side"], float]
POINTS = 200


def mean(values: Sequence[float]) -> float:
    return math.fsum(values) / len(values)


@cache
def curve_of(agent: Agent, budget: float) -> Curve:
    """Windows of a twentieth to either side; straight lines where none ended; none at first."""
    points = [budget * (g + 1) / POINTS for g in range(POINTS)]
    windows = [
        [r for end, r in agent if (g - 9) * budget <= POINTS * end <= (g + 11) * budget]
        for g in range(POINTS)
    ]
    curve: Curve = []
    for g, point in enumerate(points):
        if not agent or point < agent[0][0]:
            curve.append(None)
        elif windows[g]:
            curve.append(mean(windows[g]))
        else:
            before = max(i for i in range(g) if windows[i])
            after = [i for i in range(g, POINTS) if windows[i]]
            left = mean(windows[before])
            if not after:
                curve.append(left)
                continue
            share = (g - before) / (after[0] - before)
            curve.append(left + share * (mean(windows[after[0]]) - left))
    return curve


def windows_of(agents: Sequence[Agent], budget: float) -> tuple[float, float, bool]:
    """A tenth, widened by fortieths to a half, until every agent has ten episodes there."""
    first = final = None
    for parts in range(20, 3, -1):
        edge = budget * parts / 40
        if all(sum(end <= edge for end, _ in agent) >= 10 for agent in agents):
            first = edge
        edge = budget * (40 - parts) / 40
        if all(sum(end > edge for end, _ in agent) >= 10 for agent in agents):
            final = edge
    half = budget / 2
    return first or half, half if final is None else final, None not in (first, final)


def first_return(agent: Agent, until: float) -> float:
    return mean([r for end, r in agent if end <= until] or [agent[0][1]])


def final_return(agent: Agent, after: float) -> float:
    return mean([r for end, r in agent if end > after] or [agent[-1][1]])


@dataclass
class Side:
    """The mean curve of runs, and their mean first and final returns."""

    curve: Curve
    first: float
    final: float


def side_of(runs: Sequence[Sequence[Agent]], budget: float, windows: Sequence[float]) -> Side:
    curves = [[curve_of(agent, budget) for agent in run] for run in runs]
    curve: Curve = []
    for g in range(POINTS):
        values = [[one[g] for one in run] for run in curves]
        known = all(value is not None for run in values for value in run)
        curve.append(mean([mean([v or 0.0 for v in run]) for run in values]) if known else None)
    return Side(
        curve,
        mean([mean([first_return(agent, windows[0]) for agent in run]) for run in runs]),
        mean([mean([final_return(agent, windows[1]) for agent in run]) for run in runs]),
    )


def clipped(value: float, random: Side) -> float:
    return min(1.0, max(0.0, (value - random.first) / (random.final - random.first)))


def saved(budget: float) -> Statistic:
    def statistic(ours: Side, random: Side) -> float:
        total = 0.0
        for mine, theirs in zip(ours.curve, random.curve, strict=True):
            if mine is not None and theirs is not None:
                total += clipped(mine, random) - clipped(theirs, random)
        return budget / POINTS * total

    return statistic


def most(budget: float, random: Side) -> float:
    return budget / POINTS * sum(1 - clipped(v, random) for v in random.curve if v is not None)


def reached(curve: Curve, level: float, budget: float) -> tuple[float, str]:
    known = [g for g in range(POINTS) if curve[g] is not None]
    for g in known:
        value = curve[g]
        assert value is not None
        if value >= level:
            at = budget * (g + 1) / POINTS
            if g == known[0]:
                return at, "at most"
            before = curve[g - 1]
            assert before is not None
            return at - budget / POINTS * (value - level) / (value - before), ""
    return budget, "at least"


def variance_of(left_out: Sequence[float]) -> tuple[float, int]:
    """The jackknife's, and its degrees of freedom."""
    n = len(left_out)
    centre = mean(left_out)
    return (n - 1) / n * math.fsum((x - centre) ** 2 for x in left_out), n - 1


def interval(value: float, variances: Sequence[tuple[float, int]]) -> tuple[float, float, float]:
    whole = sum(v for v, _ in variances)
    if not whole:
        return value, value, value
    # Two runs: Student's half-width of their own.
    half = sum(stats.t.ppf(0.975, 1) ** 2 * v for v, d in variances if d == 1)
    others = [(v, d) for v, d in variances if d > 1]
    whole = sum(v for v, _ in others)
    if whole > 0:
        degrees = whole**2 / sum(v**2 / d for v, d in others)
        half += stats.t.ppf(0.975, degrees) ** 2 * whole
    half = math.sqrt(half)
    return value, value - half, value + half


def estimate(
    statistic: Statistic,
    games: Sequence[tuple[Sequence[Sequence[Agent]], Sequence[Agent]]],
    budget: float,
    minus: Sequence[Sequence[Sequence[Agent]]] = (),
) -> tuple[float, float, float]:
    """The mean over games of (runs, random's agents), less that of other runs, and its interval."""
    values, variances = [], []
    over_runs: list[list[list[float]]] = [[], []]
    for number, (runs, random) in enumerate(games):
        windows = windows_of(random, budget)
        sides = [runs, minus[number]] if minus else [runs]

        def found(
            sides: Sequence[Sequence[Sequence[Agent]]],
            random: Sequence[Agent],
            windows: Sequence[float] = windows,
        ) -> list[float]:
            reference = side_of([random], budget, windows)
            return [statistic(side_of(side, budget, windows), reference) for side in sides]

        whole = found(sides, random)
        values.append(whole[0] - sum(whole[1:]))
        parts = []
        for j in range(len(random)):
            each = found(sides, [*random[:j], *random[j + 1 :]])
            parts.append(each[0] - sum(each[1:]))
        value, degrees = variance_of(parts)
        variances.append((value / len(games) ** 2, degrees))
        for side, left_out in zip(sides, over_runs, strict=False):
            few = len(side) == 1
            units = side[0] if few else side
            rest = [[*units[:i], *units[i + 1 :]] for i in range(len(units))]
            left_out.append([found([[r] if few else r], random)[0] for r in rest])  # type: ignore[list-item]
            if few:
                value, degrees = variance_of(left_out.pop())
                variances.append((value / len(games) ** 2, degrees))
    for left_out in over_runs:
        if left_out:
            means = [mean(of) for of in zip(*left_out, strict=True)]
            variances += [variance_of(means)]
    return interval(mean(values), variances)
