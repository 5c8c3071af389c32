"""Means over meta-training runs and seeds, and how sure they are.

A method's score in a game has two sources of chance: which meta-training run it is, and with which
seed an agent learns from it. Agents of the same game and seed share heads, emulators and draws of
actions, and are set against one and the same agent of the baseline, whatever their run: seeds are
*crossed* with runs, not nested in them. The value of run k and seed s in a game is

    x_ks = μ + a_k + c_s + e_ks

and the mean over K runs and n seeds has the variance σ_a²/K + σ_c²/n + σ_e²/(K n). The variance of
the K runs' means says σ_a²/K + σ_e²/(K n), that of the n seeds' means σ_c²/n + σ_e²/(K n).

Dimensions: G games, K runs, n seeds of a game.
"""

from __future__ import annotations

import math

import numpy as np

from leap_rl.evaluation.statistics import (
    Estimate,
    Strata,
    check_strata,
    mean_interval,
    stratified_mean_interval,
)


def two_level_mean(*sides: Strata) -> Estimate:
    """Return the mean over games, each counting the same, and a 95 % interval around it.

    Half its width is √(h² + h′²): h′ of Student's interval over runs, of their means over games,
    and h of `stratified_mean_interval` over seeds, of their means over runs. σ_e² counts
    twice, so that the interval is rather too wide; Satterthwaite's degrees of freedom for the sum
    of both variances would make it too narrow with two or three runs. docs/evaluation.md has the
    measured coverage.

    With one run on each side nothing is known of other runs: the interval speaks of these alone. A
    game with a single seed makes the interval infinitely wide.

    Args:
        *sides: What is added up, by game [K, n] each. One side where values are differences of
            pairs already; two, ours and minus theirs, where each has several runs of its own. Sides
            have the same seeds of a game, and may differ in K.

    Raises:
        ValueError: There are no games, or one has no values.
    """
    for side in sides:
        check_strata(side)
    # Of each game's seeds, the sum of the sides' means over runs.
    seeds = stratified_mean_interval(
        [
            np.sum([np.mean(game, axis=0) for game in games], axis=0)
            for games in zip(*sides, strict=True)
        ]
    )
    # A run takes part in all games.
    runs = [
        mean_interval(np.mean([np.mean(game, axis=1) for game in side], axis=0))
        for side in sides
        if len(side[0]) > 1
    ]
    half = math.hypot(*((part.high - part.low) / 2 for part in [seeds, *runs]))
    return Estimate(seeds.value, seeds.value - half, seeds.value + half)
