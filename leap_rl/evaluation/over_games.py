"""Means over games of the agent steps that initializations save, and which one saves most."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from leap_rl.evaluation.statistics import (
    IntervalEstimate,
    Sampled,
    sampled_interval,
    sign_flip_test,
)
from leap_rl.evaluation.summary import Comparison, Contrast, Effect, Ranking, RankingKind, Saved


def mean_saved(
    games: Sequence[str], effects: Mapping[str, Effect], samples: Mapping[str, Sampled]
) -> Saved:
    """Return the mean over games with a gain or without: none is chosen by how it came out.

    Where random starts learn none of them there is nothing that could be saved.
    """
    known = [game for game in games if math.isfinite(samples[game].value)]
    if not any(effects[game].reference.learns for game in known):
        nothing = IntervalEstimate(math.nan, -math.inf, math.inf)
        return Saved((), nothing, math.nan, 1.0)
    return Saved(
        games=tuple(known),
        saved=sampled_interval([samples[game] for game in known]),
        most=float(np.mean([effects[game].most for game in known])),
        sign_flip=sign_flip_test([samples[game].value for game in known]),
    )


def contrasts_of(samples: Mapping[str, Mapping[str, Sampled]]) -> Iterable[Contrast]:
    """Yield each two of the initializations against each other, over the games of both."""
    for ours, theirs in itertools.combinations(samples, 2):
        games = [game for game in samples[ours] if game in samples[theirs]]
        known = [
            game
            for game in games
            if math.isfinite(samples[ours][game].value + samples[theirs][game].value)
        ]
        if known:
            sides = ([samples[name][game] for game in known] for name in (ours, theirs))
            yield Contrast(ours, theirs, sampled_interval(*sides))


def ranking_of(
    comparisons: Sequence[Comparison], samples: Mapping[str, Mapping[str, Sampled]]
) -> Ranking | None:
    """Rank initializations over the games that all of them have; none where there are none.

    Over those that no meta-training saw, if these are the same for all. A part of a study may lack
    an initialization's agents in some games: means over other games would tell games apart.
    """
    judged = {
        each.initialization: each
        for each in comparisons
        if "all" in each.over and each.over["all"].games
    }
    if not judged:
        return None
    known = [each.over["all"].games for each in judged.values()]
    games = tuple(game for game in known[0] if all(game in of for of in known))
    unseen = {
        tuple(game for game in games if each.games[game].seen is False) for each in judged.values()
    }
    new, *others = unseen
    effects = next(iter(judged.values())).games
    if not others and any(effects[game].reference.learns for game in new):
        games = new
    saved = {name: mean_saved(games, each.games, samples[name]) for name, each in judged.items()}
    if not games or not all(each.games for each in saved.values()):
        return None
    effects_of = [each.games for each in judged.values()]
    saw, new_ones = (
        any(effect.seen is seen for of in effects_of for effect in of.values())
        for seen in (True, False)
    )
    kind: RankingKind = "all" if {*known} == {games} else "shared"
    if saw and unseen == {games}:
        kind = "new"
    elif new_ones and all(of[game].seen for of in effects_of for game in games):
        kind = "seen"
    order = sorted(saved, key=lambda name: -saved[name].saved.value)
    sides = [[samples[name][game] for game in games] for name in order[:2]]
    return Ranking(
        games=games,
        kind=kind,
        saved={name: saved[name] for name in order},
        lead=sampled_interval(*sides) if len(sides) == 2 else None,
    )
