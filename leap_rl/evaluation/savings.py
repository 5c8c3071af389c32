"""Agent steps that a start saves, and how much sooner agents learn from it, with intervals.

The measure of a comparison. Agents of the reference, those from random starts, gain m₁ − m₀ in a
game, from their first returns to their final ones. A level is a share of that gain. Agents that
come to levels sooner save the agent steps by which they do.

Dimensions: G points of a grid, R runs of an initialization, A agents of each, n agents of the
reference.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import count
from typing import Final, Literal, NamedTuple, TypeAlias

import numpy as np

from leap_rl.evaluation.measures import Agents, Means, Windows, grid, means_of, measure, windows_of
from leap_rl.evaluation.results import LearningCurve
from leap_rl.evaluation.statistics import (
    LEAST_REFERENCE,
    FloatArray,
    IntervalEstimate,
    Sampled,
    mean_interval,
    sampled_interval,
    student,
)

Bound: TypeAlias = Literal["", "at least", "at most"]
Verdict: TypeAlias = Literal["sound", "uncertain", "no gain", "long episodes"]

LARGEST_ERROR: Final = 0.5
"""Of the gain: half the width of its interval, in a sound reference."""
LARGEST_NOISE: Final = 0.10
"""Of the gain: the error that the choice of episodes makes in the mean curve, in a sound one."""
MOST_AGENTS: Final = 1000
"""More agents are not looked for."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Reference:
    """What agents from random starts do in a game: what others are measured by."""

    budget: int
    windows: Windows
    agents: Agents
    """n of them."""
    means: Means
    """Over all of them: m₀ is their first return, m₁ their final one."""
    gain: IntervalEstimate
    """m₁ − m₀."""
    noise: float
    """The median over the grid of the mean curve's standard error from its episodes, as a share of
    the gain."""
    verdict: Verdict
    more_agents: int
    """How many more agents would make an uncertain one sound; 0 where it is, or no number would."""

    @property
    def learns(self) -> bool:
        """Whether the agents' gain is known to be above zero."""
        return self.verdict in ("sound", "uncertain")

    @property
    def falls(self) -> bool:
        """Whether the agents are known to get worse, which leaves nothing to be saved."""
        return self.gain.high < 0

    def saved_by(self, ours: Means, theirs: Means | None = None) -> float:
        """Return D; 0 where these agents get worse, as its sign would be the wrong one.

        ``theirs`` are means over other draws of them.
        """
        return 0.0 if self.falls else agent_steps_saved(ours, theirs or self.means, self.budget)


def make_reference(curves: Sequence[LearningCurve], budget: int) -> Reference:
    """Return what n agents gain, and whether that is known well enough to measure by."""
    windows = windows_of(curves, budget)
    agents = measure(curves, budget, windows)
    means = means_of([agents])
    gains = (agents.final - agents.first)[np.isfinite(agents.final)]
    nothing = IntervalEstimate(math.nan, -math.inf, math.inf)
    gain = mean_interval(gains) if len(gains) else nothing
    size = abs(gain.value)
    known = np.isfinite(agents.variances).sum(axis=0)
    with np.errstate(invalid="ignore", divide="ignore"):
        per_agent = np.nansum(agents.variances, axis=0) / known
        errors = np.sqrt(per_agent / len(agents)) / size
    noise = float(np.median(errors[known > 0])) if known.any() else math.inf
    verdict: Verdict = "sound"
    few = len(gains) < LEAST_REFERENCE
    if not windows.found:
        verdict = "long episodes"
    elif not (gain.low > 0 or (few and gain.value > 0)):
        verdict = "no gain"
    elif few or (gain.high - gain.low) / 2 > LARGEST_ERROR * size or not noise <= LARGEST_NOISE:
        verdict = "uncertain"
    more = _more_agents(gains, noise) if verdict == "uncertain" else 0
    return Reference(
        budget=budget,
        windows=windows,
        agents=agents,
        means=means,
        gain=gain,
        noise=noise,
        verdict=verdict,
        more_agents=more,
    )


def _more_agents(gains: FloatArray, noise: float) -> int:
    parts, size = len(gains), abs(float(np.mean(gains)))
    deviation = float(np.std(gains)) * math.sqrt(parts / max(1, parts - 1))
    quiet = math.ceil(parts * (noise / LARGEST_NOISE) ** 2) if math.isfinite(noise) else 0
    for agents in count(max(quiet, LEAST_REFERENCE)):
        if student(agents - 1) / math.sqrt(agents) * deviation <= LARGEST_ERROR * size:
            return max(0, agents - parts)
        if agents > MOST_AGENTS:
            break
    return 0


def levels(curve: FloatArray, reference: Means) -> FloatArray:
    """Return the share of the reference's gain that a curve [..., G] has reached, from 0 to 1.

    NaN if it gains nothing. Only mean curves come here: clipping an agent's own would turn its
    noise into a bias.
    """
    gain = reference.final - reference.first
    return np.asarray(np.clip((curve - reference.first) / (gain or math.nan), 0.0, 1.0))


def agent_steps_saved(ours: Means, reference: Means, budget: int) -> float:
    """Return D, the agent steps that agents save.

    D = (B/G) Σ [h − h_random] over the points where both are known, with `levels` h: the agent
    steps spent at or above a level, averaged over the levels. Below 0 they are lost.
    """
    differences = levels(ours.curve, reference) - levels(reference.curve, reference)
    known = np.isfinite(differences)
    return budget / len(known) * float(differences[known].sum()) if known.any() else math.nan


def most_that_can_be_saved(reference: Reference) -> float:
    """Return D_max: what agents save that are at the reference's end from the beginning."""
    if reference.falls:
        return 0.0
    missing = 1.0 - levels(reference.means.curve, reference.means)
    known = np.isfinite(missing)
    return float(reference.budget / len(missing) * missing[known].sum())


def level_at(share: float, reference: Means) -> float:
    """Return the return at which a share of the reference's gain is reached."""
    return reference.first + share * (reference.final - reference.first)


class Reached(NamedTuple):
    """When a curve reaches a level, in agent steps."""

    agent_steps: float
    bound: Bound
    """"at most" where it is there from its first point on, "at least" where it never is."""


def reached(curve: FloatArray, level: float, budget: int) -> Reached:
    """Return when a curve [G] first is at a level, on the straight line between two points."""
    points = grid(budget)
    known = np.flatnonzero(np.isfinite(curve))
    there = known[curve[known] >= level]
    if not len(there):
        return Reached(float(budget), "at least")
    first = there[0]
    if first == known[0]:
        return Reached(float(points[first]), "at most")
    before = first - 1
    share = (level - curve[before]) / (curve[first] - curve[before])
    return Reached(float(points[before] + share * (points[first] - points[before])), "")


class SpeedUp(NamedTuple):
    """How many times sooner agents reach a level."""

    times: float
    bound: Bound
    low: float = -math.inf
    high: float = math.inf


def speed_up(runs: Sequence[Agents], reference: Reference, share: float) -> SpeedUp | None:
    """Return the reference's time to a share of its gain over that of the runs' mean curve.

    A time that lies before the first point, or after the budget, bounds it to one side; none where
    that tells nothing. The interval is that of the logarithm, infinite where leaving out a run or
    an agent makes a time a bound.
    """

    def logarithm(ours: Means, theirs: Means) -> float:
        found = _ratio(ours, theirs, reference.budget, share)
        return math.nan if found is None or found.bound else math.log(found.times)

    whole = _ratio(means_of(runs), reference.means, reference.budget, share)
    if whole is None or whole.bound:
        return whole
    interval = sampled_interval([sample(logarithm, runs, reference)])
    if not math.isfinite(interval.low):
        return whole
    return whole._replace(low=math.exp(interval.low), high=math.exp(interval.high))


def _ratio(ours: Means, theirs: Means, budget: int, share: float) -> SpeedUp | None:
    level = level_at(share, theirs)
    at, then = (reached(each.curve, level, budget) for each in (ours, theirs))
    of_ours: dict[Bound, Bound] = {"": "", "at most": "at least", "at least": "at most"}
    bounds = {bound for bound in (then.bound, of_ours[at.bound]) if bound}
    if len(bounds) == 2:
        return None
    return SpeedUp(then.agent_steps / at.agent_steps, bounds.pop() if bounds else "")


Statistic: TypeAlias = Callable[[Means, Means], float]
"""Of the means over runs, and of the reference's."""


def sample(
    statistic: Statistic,
    runs: Sequence[Agents],
    reference: Reference,
    numbers: Sequence[int] | None = None,
) -> Sampled:
    """Return a statistic, and what it is with each run and each agent of the reference left out.

    Leaving an agent out takes it from everything: the first and final returns and the curve. A mean
    over games takes `numbers`, which runs these are.
    """
    ours = means_of(runs)
    parts = (
        [[runs[0].without(agent)] for agent in range(len(runs[0]))]
        if len(runs) == 1
        else [[*runs[:run], *runs[run + 1 :]] for run in range(len(runs))]
    )
    agents = reference.agents
    return Sampled(
        value=statistic(ours, reference.means),
        left_out=np.array([statistic(means_of(part), reference.means) for part in parts]),
        runs=tuple(range(len(runs)) if numbers is None else numbers),
        reference_left_out=np.array(
            [statistic(ours, means_of([agents.without(each)])) for each in range(len(agents))]
        ),
        agents=min(map(len, runs)),
    )
