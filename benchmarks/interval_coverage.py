"""How wide the intervals of few agents are, and how often they contain the true value.

The tables of docs/evaluation.md. The second is of many made-up evaluations whose truth is known:
the share in which the 95 % interval holds the value that endlessly many seeds would give. Each game
has its own mean and deviation. The third is of methods with several meta-training runs, which truly
differ: the share in which it holds what endlessly many runs and seeds would give, or with one run,
what endlessly many seeds would give of that run.

Dimensions: K runs, n seeds.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from functools import partial
from itertools import product

import numpy as np
from scipy import optimize, stats

from benchmarks.harness.tables import markdown
from leap_rl.evaluation.statistics import (
    FloatArray,
    bootstrap,
    detectable_effect,
    half_width,
    interquartile_mean,
    probability_of_improvement,
    runs_by_agents_interval,
    stratified_mean_interval,
)

ENDLESS = 20_000
RUNS_GAMES = 4
STATISTICS = ("interquartile mean", "probability of improvement")
EFFECT = 0.5
"""By how many deviations one side is better, for the probability of improvement."""


def draw(
    rng: np.random.Generator, games: int, seeds: int, *, better: float = 0.0
) -> list[FloatArray]:
    """Return scores by game, [seeds] each: game g has mean g/2 and deviation 1 + g/4."""
    return [
        game / 2 + (1 + game / 4) * (better + rng.standard_normal(seeds)) for game in range(games)
    ]


def coverage(games: int, seeds: int, *, evaluations: int, resamples: int) -> dict[str, float]:
    """Return by statistic the share of evaluations whose interval holds the truth."""
    rng = np.random.default_rng([games, seeds])
    mean = float(np.mean([game / 2 for game in range(games)]))
    middle = float(interquartile_mean(draw(rng, games, ENDLESS)))
    # Of two normal scores whose means are EFFECT deviations apart.
    ours, theirs = (rng.standard_normal(10 * ENDLESS) + better for better in (EFFECT, 0.0))
    chance = float(np.mean(ours > theirs))
    held = dict.fromkeys(("mean", *STATISTICS), 0)
    for number in range(evaluations):
        scores = draw(rng, games, seeds)
        found = stratified_mean_interval(scores)
        held["mean"] += found.low <= mean <= found.high
        better = draw(rng, games, seeds, better=EFFECT)
        estimate = partial(bootstrap, seed=number, resamples=resamples)
        _, low, high = estimate(interquartile_mean, scores)
        held["interquartile mean"] += bool(low <= middle <= high)
        _, low, high = estimate(probability_of_improvement, better, scores)
        held["probability of improvement"] += bool(low <= chance <= high)
    return {name: count / evaluations for name, count in held.items()}


def draw_runs(
    rng: np.random.Generator,
    games: int,
    runs: int,
    seeds: int,
    *,
    between_runs: float,
    better: float = 0.0,
) -> tuple[list[FloatArray], list[FloatArray], FloatArray]:
    """Return scores by game of a method's runs, [K, n], and of the baseline, [1, n].

    Agents of a seed share a deviation of 0.5, and each has one of 1 of its own. Runs deviate by
    `between_runs` times that; half of the variance is the same in all games. The third is by how
    much each run is better than `better` in each game, [games, K].
    """
    share = between_runs * np.sqrt(0.5)
    of_runs = share * (rng.standard_normal((1, runs)) + rng.standard_normal((games, runs)))
    ours, theirs = [], []
    for game in range(games):
        shared = 0.5 * rng.standard_normal(seeds)
        agents = rng.standard_normal((runs, seeds)) + of_runs[game][:, None]
        ours.append(game + better + shared + agents)
        theirs.append(game + shared + rng.standard_normal((1, seeds)))
    return ours, theirs, of_runs


def coverage_of_runs(
    games: int, runs: int, seeds: int, *, between_runs: float, evaluations: int, resamples: int
) -> dict[str, float]:
    """Return by statistic the share of evaluations whose interval holds the truth."""
    rng = np.random.default_rng([games, runs, seeds])
    held = dict.fromkeys(("mean difference", *STATISTICS), 0)
    for number in range(evaluations):
        ours, theirs, of_runs = draw_runs(
            rng, games, runs, seeds, between_runs=between_runs, better=EFFECT
        )
        # With one run the interval speaks of this one; deviations of normal scores add up.
        these = of_runs[:, 0] if runs == 1 else np.zeros(games)
        deviation = np.hypot(np.hypot(0.5, 1.0), 0.0 if runs == 1 else between_runs)
        found = runs_by_agents_interval([x - y for x, y in zip(ours, theirs, strict=True)])
        held["mean difference"] += found.low <= EFFECT + these.mean() <= found.high
        middle = truth_of_middle(EFFECT + np.arange(games) + these, deviation)
        estimate = partial(bootstrap, seed=number, resamples=resamples)
        _, low, high = estimate(interquartile_mean, ours)
        held[STATISTICS[0]] += bool(low <= middle <= high)
        chance = np.mean(stats.norm.cdf((EFFECT + these) / np.hypot(deviation, np.hypot(0.5, 1.0))))
        _, low, high = estimate(probability_of_improvement, ours, theirs)
        held[STATISTICS[1]] += bool(low <= chance <= high)
    return {name: count / evaluations for name, count in held.items()}


def truth_of_middle(means: FloatArray, deviation: float) -> float:
    """Return the interquartile mean of endlessly many scores, as many in each game.

    Of a mixture of normal distributions with the same deviation: the mean of what lies between its
    quartiles is 2 Σ [m (Φ(b) − Φ(a)) − s (φ(b) − φ(a))] / G.
    """

    def share_below(score: float) -> float:
        return float(np.mean(stats.norm.cdf((score - means) / deviation)))

    edges = means.min() - 10 * deviation, means.max() + 10 * deviation
    low, high = (
        optimize.brentq(lambda score, part=part: share_below(score) - part, *edges)
        for part in (0.25, 0.75)
    )
    a, b = (low - means) / deviation, (high - means) / deviation
    inside = means * (stats.norm.cdf(b) - stats.norm.cdf(a))
    inside -= deviation * (stats.norm.pdf(b) - stats.norm.pdf(a))
    return float(2 * np.mean(inside))


def width_rows(seeds: Sequence[int]) -> list[dict[str, str]]:
    """Return the table of what so many seeds a game can say."""
    return [
        {
            "seeds a game": str(count),
            "half-width of Student's interval": f"{half_width(count):.1f}",
            "difference that shows in 4 of 5 evaluations": f"{detectable_effect(count):.1f}",
            "all pairs on one side by chance": f"{200 * 0.5**count:.2g} %",
        }
        for count in seeds
    ]


def options() -> argparse.ArgumentParser:
    """Return the parser of the options."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--widths", nargs="+", type=int, default=[2, 3, 5, 6, 10])
    parser.add_argument("--games", nargs="+", type=int, default=[1, 4, 9])
    parser.add_argument("--seeds", nargs="+", type=int, default=[3, 5, 10])
    parser.add_argument("--runs", nargs="+", type=int, default=[1, 3, 5])
    parser.add_argument("--between_runs", nargs="+", type=float, default=[0.5, 1.0])
    parser.add_argument("--evaluations", type=int, default=1000)
    parser.add_argument("--resamples", type=int, default=1000)
    return parser


def main() -> None:
    """Run the command."""
    given = options().parse_args()
    print(markdown(width_rows(given.widths)))
    rows = []
    for games, agents in product(given.games, given.seeds):
        shares = coverage(games, agents, evaluations=given.evaluations, resamples=given.resamples)
        found = {name: f"{100 * share:.0f} %" for name, share in shares.items()}
        rows.append({"games": games, "agents": agents, **found})
        print(rows[-1], flush=True)
    print(markdown(rows))
    rows = []
    many = given.evaluations, given.resamples
    for runs, agents, between in product(given.runs, [5, 10], given.between_runs):
        shares = coverage_of_runs(
            RUNS_GAMES, runs, agents, between_runs=between, evaluations=many[0], resamples=many[1]
        )
        found = {name: f"{100 * share:.0f} %" for name, share in shares.items()}
        rows.append({"runs": runs, "agents": agents, "runs' deviation": between, **found})
        print(rows[-1], flush=True)
    print(markdown(rows), end="")


if __name__ == "__main__":
    main()
