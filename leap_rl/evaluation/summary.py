"""An evaluation's summary, as plain data: `comparison.py` computes it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple, TypeAlias

from leap_rl.evaluation.measures import Agents
from leap_rl.evaluation.normalization import Scale
from leap_rl.evaluation.results import EvaluationResults
from leap_rl.evaluation.savings import Reference, SpeedUp
from leap_rl.evaluation.statistics import IntervalEstimate
from leap_rl.training.rounds.evaluation_slots import RANDOM

Scope: TypeAlias = Literal["all", "seen", "new"]
"""Games that a mean is over: all, or those that meta-training saw, or those that it did not."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Game:
    """What agents did in a game."""

    reference: Reference
    runs: Mapping[str, Sequence[Agents]]
    """By initialization, of each of its runs that has finished agents."""
    numbers: Mapping[str, Sequence[int]]
    """By initialization but the reference, which runs these are, ascending."""
    human: Scale | None
    """Of returns."""

    @property
    def scale(self) -> Scale | None:
        """The scale on which the reference begins at 0 and ends at 1; none without a gain."""
        means = self.reference.means
        return Scale(means.first, means.final - means.first) if self.reference.learns else None


@dataclass(frozen=True, kw_only=True, slots=True)
class Effect:
    """What an initialization does in a game, against the reference."""

    reference: Reference
    seen: bool | None
    """Whether its meta-training saw the game; none where that is not known."""
    saved: IntervalEstimate
    """Agent steps; NaN where the reference gains nothing at all."""
    most: float
    """The most agent steps that any start could save."""
    speed_ups: Mapping[float, SpeedUp | None]
    """By the share of the reference's gain; empty where the reference is not sound."""
    final: IntervalEstimate
    """Return."""
    final_difference: IntervalEstimate
    first_difference: IntervalEstimate
    """Of the first returns: the jumpstart."""
    area_log_ratio: IntervalEstimate | None
    """Of the areas under the curves of returns; none where one is not above 0."""
    rate: float
    """Raw reward per 1,000 agent steps."""
    improvement: IntervalEstimate
    """Probability that an agent of ours has a larger area than one of the reference."""


class Saved(NamedTuple):
    """The mean over games of the agent steps that are saved."""

    games: tuple[str, ...]
    saved: IntervalEstimate
    most: float
    sign_flip: float
    """How often chance signs make a mean over games so far from 0."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Comparison:
    """An initialization against the reference."""

    initialization: str
    reference: str
    """Its name."""
    runs: int
    """Meta-training runs of the initialization: the fewest with agents in any of the games."""
    trained: float | None
    """Agent steps of a run's meta-training, if they are known."""
    games: Mapping[str, Effect]
    """By game, those with agents of both."""
    over: Mapping[Scope, Saved]
    """Means over games; "seen" and "new" where there are both. Empty without agents."""

    def effects(self, scope: Scope) -> Sequence[Effect]:
        """Return those in the games of a scope."""
        return [
            effect
            for effect in self.games.values()
            if scope == "all" or bool(effect.seen) == (scope == "seen")
        ]

    def pays_over(self, scope: Scope) -> IntervalEstimate | None:
        """Return after how many new tasks of a scope's games meta-training has paid.

        None where it may never, where a game's reference is not sound, or where that is no random
        start: what an initialization saves over another one does not pay for both.
        """
        return self._pays(self.over[scope].saved, self.effects(scope))

    def pays_in(self, game: str) -> IntervalEstimate | None:
        """Return the same for tasks of a game."""
        return self._pays(self.games[game].saved, [self.games[game]])

    def _pays(self, saved: IntervalEstimate, effects: Iterable[Effect]) -> IntervalEstimate | None:
        sound = self.reference == RANDOM
        sound &= all(effect.reference.verdict == "sound" for effect in effects)
        if not self.trained or not sound or not 0 < saved.low < float("inf"):
            return None
        return IntervalEstimate(*(self.trained / each for each in (saved.value, *saved[:0:-1])))


class Contrast(NamedTuple):
    """Two initializations against each other, over all games."""

    ours: str
    theirs: str
    saved: IntervalEstimate


RankingKind = Literal["all", "seen", "new", "shared"]


class Ranking(NamedTuple):
    """Initializations by what they save over the same games, the most first."""

    games: tuple[str, ...]
    kind: RankingKind
    """all: every game. new: those that no meta-training saw. seen: where these cannot be measured,
    those that it saw. shared: those that every initialization has agents in, where some have
    agents in others too."""
    saved: Mapping[str, Saved]
    """Over these games, by initialization."""
    lead: IntervalEstimate | None
    """Agent steps that the first saves more than the second; none where there is no second."""

    @property
    def best(self) -> str:
        return next(iter(self.saved))


@dataclass(frozen=True, kw_only=True, slots=True)
class Summary:
    """Measures, comparisons and verdict of an evaluation."""

    evaluation: EvaluationResults
    reference: str
    """The name of what all are compared with: random, else the first initialization."""
    games: Mapping[str, Game]
    """Those with agents of the reference."""
    comparisons: tuple[Comparison, ...] = ()
    contrasts: tuple[Contrast, ...] = ()
    ranking: Ranking | None = None
    """None where no game can be measured that all initializations have agents in."""
    middles: Mapping[str, IntervalEstimate]
    """By initialization, the interquartile mean of its agents' areas on `Game.scale`."""
    verdict: tuple[str, ...] = ()
    """In plain words: each comparison, and what to keep in mind."""
