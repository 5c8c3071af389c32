"""Means, interquartile means and probabilities over repetitions, with 95 % intervals.

Scores of several games come as strata: one array a game, of one score an agent: [n], or [K, n] of
K meta-training runs whose agents have the same n seeds. Games are fixed, runs and agents are drawn:
an interval speaks of other runs and agents in the same games, never of other games.

* What compares initializations has Student's interval of a jackknifed variance.
* Everything else has the percentile bootstrap, stratified over games (Agarwal et al. 2021, "Deep
  Reinforcement Learning at the Edge of the Statistical Precipice"). With less than some five values
  a game it is too narrow. docs/results/interval_coverage.md has the coverage of Student's.

Dimensions: G games, K runs, n agents of a run in a game, N scores over all games, R resamples, T
thresholds.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray
from scipy import stats

CONFIDENCE = 0.95
PART = 2_000
"""Resamples that are compared at once."""
RESAMPLES = 10_000
"""Of a bootstrap: its own noise moves the ends of an interval by some 1 % of its width."""

LEAST_AGENTS = 3
"""Of a run, for an interval."""
LEAST_REFERENCE = 5
"""Agents of the reference, for an interval."""
MOST_EXACT_FLIPS = 16

FloatArray: TypeAlias = NDArray[np.float64]
Strata: TypeAlias = Sequence[FloatArray]
"""Scores by game: G arrays [..., n]; games may differ in n."""


class IntervalEstimate(NamedTuple):
    """A value and its interval."""

    value: float
    low: float
    high: float


def shown(found: IntervalEstimate, form: str, *, scale: float = 1.0) -> str:
    """Return a value and, where it has one, its interval, each times `scale` (100 for percent)."""
    value, low, high = (format(scale * each, form) for each in found)
    return value if math.isinf(found.low) else f"{value} ({low} to {high})"


def mean_interval(values: Sequence[float] | FloatArray) -> IntervalEstimate:
    """Return the mean of independent values and its Student's 95 % interval; ValueError if none.

    The interval of a single value is infinitely wide.
    """
    found = np.asarray(values, dtype=np.float64)
    check_strata([found])
    parts = len(found)
    error = Variance(float(np.var(found)) / max(1, parts - 1), parts - 1)
    return welch_interval(float(np.mean(found)), [error])


class Variance(NamedTuple):
    """Of an estimate, from one source of chance, with its degrees of freedom."""

    value: float
    degrees: float


def jackknife(left_out: FloatArray) -> Variance:
    """Return a statistic's variance from its values with each of n parts left out, [n].

    V = (n − 1)/n Σ (x₍₋ⱼ₎ − mean)², the jackknife (Efron and Stein 1981).
    """
    parts = len(left_out)
    return Variance((parts - 1) * float(np.var(left_out)), parts - 1)


def welch_interval(value: float, variances: Sequence[Variance]) -> IntervalEstimate:
    """Return Student's interval of an estimate whose variances add up.

    The degrees of freedom are Welch's and Satterthwaite's: (Σ V)² / Σ V²/ν. These make an interval
    too narrow with a variance of one degree of freedom, as two runs have, which is often far too
    small: such a one has Student's half-width of its own, and half-widths add up as deviations do.
    Without a degree of freedom, or a variance that is known, the interval is infinitely wide.
    """
    if not variances or any(not (each.degrees > 0 and each.value >= 0) for each in variances):
        return IntervalEstimate(value, -math.inf, math.inf)
    half = math.hypot(*(student(1) * math.sqrt(one.value) for one in variances if one.degrees == 1))
    rest = [one for one in variances if one.degrees > 1]
    if whole := sum(one.value for one in rest):
        degrees = whole**2 / sum(one.value**2 / one.degrees for one in rest)
        half = math.hypot(half, student(degrees) * math.sqrt(whole))
    return IntervalEstimate(value, value - half, value + half)


@dataclass(frozen=True, kw_only=True, slots=True)
class Sampled:
    """A statistic of runs in one game, measured against n agents of a reference."""

    value: float
    left_out: FloatArray
    """With each of R runs left out, [R]; of a single run, with each of its agents left out."""
    runs: tuple[int, ...]
    """Which runs these are, [R]."""
    reference_left_out: FloatArray
    """With each of the reference's agents left out, [n]; empty if it needs no reference."""
    agents: int
    """The fewest of a run."""


def sampled_interval(samples: Sequence[Sampled], minus: Sequence[Sampled] = ()) -> IntervalEstimate:
    """Return the mean over games of a statistic, less another's, and its 95 % interval.

    Its variance is the jackknife's over runs, each left out of all games at once, and over the
    agents of the reference, whose error all runs share. A single run's agents stand in for runs,
    others in each game: the interval then speaks of this run alone. There is none with fewer than
    `LEAST_AGENTS` of a run or `LEAST_REFERENCE` of the reference, or where games differ in runs.

    Args:
        samples: Of each game, of the same runs.
        minus: The same of other runs, measured against the same agents.
    """
    sides = [side for side in (samples, minus) if side]
    means = [float(np.mean([one.value for one in side])) for side in sides]
    value = means[0] - sum(means[1:])
    every = [one for side in sides for one in side]
    agents = [len(one.reference_left_out) for one in every]
    few = min(one.agents for one in every) < LEAST_AGENTS or 0 < min(agents) < LEAST_REFERENCE
    if few or any(len({one.runs for one in side}) > 1 for side in sides):
        return IntervalEstimate(value, -math.inf, math.inf)
    variances = [variance for side in sides for variance in _over_runs(side)]
    if all(agents):
        referred = [one.reference_left_out for one in samples]
        if minus:
            others = [one.reference_left_out for one in minus]
            referred = [one - other for one, other in zip(referred, others, strict=True)]
        variances += _of_mean(referred)
    return welch_interval(value, variances)


def _over_runs(side: Sequence[Sampled]) -> Sequence[Variance]:
    left_out = [one.left_out for one in side]
    if len(side[0].runs) == 1:
        return _of_mean(left_out)
    return [jackknife(np.mean(left_out, axis=0))]


def _of_mean(left_out: Sequence[FloatArray]) -> Sequence[Variance]:
    """Return the parts of the variance of a mean over games whose values are independent."""
    parts = [jackknife(each) for each in left_out]
    return [Variance(part.value / len(parts) ** 2, part.degrees) for part in parts]


def sign_flip_test(values: Sequence[float]) -> float:
    """Return how often chance signs make a mean at least as far from 0, of both signs' 2^M.

    Fisher's randomisation test of M values that would be symmetric around 0. More than
    `MOST_EXACT_FLIPS` values are flipped at random, 100,000 times.
    """
    found = np.asarray(values, dtype=np.float64)
    if len(found) <= MOST_EXACT_FLIPS:
        signs = 1 - 2 * ((np.arange(2 ** len(found))[:, None] >> np.arange(len(found))) & 1)
    else:
        signs = np.random.default_rng(0).choice([-1, 1], size=(100_000, len(found)))
    extreme = np.abs(signs @ found) >= abs(found.sum()) * (1 - 1e-12)
    return float(np.mean(extreme))


def interquartile_mean(strata: Strata) -> FloatArray:
    """Return the mean of the middle half of all scores, [...]; of N, ⌊N/4⌋ go at each end.

    Agarwal et al. 2021, section 4.3.
    """
    pooled = np.concatenate(strata, axis=-1)
    return np.asarray(stats.trim_mean(pooled, 0.25, axis=-1), dtype=np.float64)


def probability_of_improvement(ours: Strata, theirs: Strata) -> FloatArray:
    """Return the mean over games of P(X > Y) + P(X = Y)/2, [...], for one agent X of ours and Y.

    Agarwal et al. 2021, section 4.3: Mann and Whitney's U over n·m.
    """
    chances = [
        np.mean(
            0.5 * (x[..., :, None] > y[..., None, :]) + 0.5 * (x[..., :, None] >= y[..., None, :]),
            axis=(-2, -1),
        )
        for x, y in zip(ours, theirs, strict=True)
    ]
    return np.asarray(np.mean(chances, axis=0), dtype=np.float64)


def performance_profile(strata: Strata, thresholds: FloatArray) -> FloatArray:
    """Return the share of agents whose score is above each threshold, [..., T].

    Agarwal et al. 2021, section 4.2 (run-score distributions). Each game counts the same.
    """
    shares = [
        [np.mean(stratum > threshold, axis=-1) for threshold in thresholds] for stratum in strata
    ]
    return np.asarray(np.moveaxis(np.mean(shares, axis=0), 0, -1), dtype=np.float64)


def bootstrap(
    statistic: Callable[..., FloatArray],
    *sides: Strata,
    seed: int,
    resamples: int = RESAMPLES,
    bounds: tuple[float, float] = (-math.inf, math.inf),
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Return a statistic and the ends of its stratified percentile bootstrap interval.

    Args:
        statistic: Strata [R, n] of each side to values [R], or [R, T] of T values.
        sides: Scores by game, [n] each, or [K, n] of K runs; each side is redrawn by itself.
        seed: Of the resampling.
        resamples: R.
        bounds: Of what the statistic can be: the interval where a game has a single score of a
            run, as redrawing that one tells nothing.

    Raises:
        ValueError: There are no games, or one has no scores.
    """
    for side in sides:
        check_strata(side)
    value = statistic(*([np.ravel(stratum)[None] for stratum in side] for side in sides))[0]
    if min(np.shape(stratum)[-1] for side in sides for stratum in side) == 1:
        low, high = (np.full_like(value, bound) for bound in bounds)
        return value, low, high
    rng = np.random.default_rng(seed)
    drawn = [redraw(side, rng, resamples) for side in sides]
    # Part by part: the comparisons of all resamples at once may not fit into memory.
    parts = [
        statistic(*([stratum[start : start + PART] for stratum in side] for side in drawn))
        for start in range(0, resamples, PART)
    ]
    tail = (1 - CONFIDENCE) / 2
    low, high = np.quantile(np.concatenate(parts), [tail, 1 - tail], axis=0)
    return value, low, high


def redraw(strata: Strata, rng: np.random.Generator, resamples: int) -> list[FloatArray]:
    """Return strata [n] or [K, n] redrawn with replacement, [R, K · n] each.

    Runs are drawn first, once for all games, then seeds within each game. A seed that is drawn is
    drawn for all runs, since agents of one seed share their heads, emulators and draws of actions.
    """
    scores = [np.atleast_2d(np.asarray(stratum, dtype=np.float64)) for stratum in strata]
    of_runs = len(scores[0])
    runs = rng.integers(0, of_runs, (resamples, of_runs, 1))
    drawn = []
    for each in scores:
        seeds = rng.integers(0, each.shape[1], (resamples, 1, each.shape[1]))
        drawn.append(each[runs, seeds].reshape(resamples, -1))
    return drawn


def check_strata(strata: Strata) -> None:
    """Refuse strata without games, or a game without scores."""
    if not strata or min(np.size(stratum) for stratum in strata) == 0:
        raise ValueError("strata: a game has no scores, or there are no games")


def student(degrees: float) -> float:
    """Return Student's quantile that the interval of `CONFIDENCE` reaches to."""
    return float(stats.t.ppf(0.5 + CONFIDENCE / 2, degrees))
