"""What can few seeds say, and how often do the intervals of an evaluation hold the truth?

The tables of docs/evaluation.md. The second is of many made-up evaluations whose truth is known:
the share in which the 95 % interval holds the value that endlessly many seeds would give. Each game
has its own mean and deviation.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from itertools import product

import numpy as np

from leap_rl.evaluation.figures import markdown
from leap_rl.evaluation.statistics import (
    FloatArray,
    bootstrap_interval,
    detectable_effect,
    half_width,
    improvement_interval,
    interquartile_mean,
    stratified_mean_interval,
)

ENDLESS = 20_000
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
    held = dict.fromkeys(("mean", "interquartile mean", "probability of improvement"), 0)
    for number in range(evaluations):
        scores = draw(rng, games, seeds)
        found = stratified_mean_interval(scores)
        held["mean"] += found.low <= mean <= found.high
        estimate = bootstrap_interval(scores, interquartile_mean, seed=number, resamples=resamples)
        held["interquartile mean"] += estimate.low <= middle <= estimate.high
        estimate = improvement_interval(
            draw(rng, games, seeds, better=EFFECT), scores, seed=number, resamples=resamples
        )
        held["probability of improvement"] += estimate.low <= chance <= estimate.high
    return {name: count / evaluations for name, count in held.items()}


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
    parser.add_argument("--evaluations", type=int, default=1000)
    parser.add_argument("--resamples", type=int, default=1000)
    return parser


def main() -> None:
    """Run the command."""
    given = options().parse_args()
    print(markdown(width_rows(given.widths)))
    rows = []
    for games, seeds in product(given.games, given.seeds):
        shares = coverage(games, seeds, evaluations=given.evaluations, resamples=given.resamples)
        found = {name: f"{100 * share:.0f} %" for name, share in shares.items()}
        rows.append({"games": games, "seeds": seeds, **found})
        print(rows[-1], flush=True)
    print(markdown(rows), end="")


if __name__ == "__main__":
    main()
