"""An evaluation's summary, as plain data: `comparison.py` computes it.

Over games each game counts the same; a pair is two agents of the same game and seed, one of them of
the reference. The area is raw reward per 1,000 agent steps, the final performance a raw return.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple, TypeAlias

import numpy as np

from leap_rl.evaluation.measures import AgentMeasures
from leap_rl.evaluation.normalization import RAW, Scale
from leap_rl.evaluation.results import EvaluationResults
from leap_rl.evaluation.statistics import FloatArray, IntervalEstimate
from leap_rl.training.rounds.evaluation_slots import RANDOM

Measure: TypeAlias = Literal["area", "final", "drawdown"]
Yardstick: TypeAlias = Literal["baseline", "human"]
"""What scores are normalised by: the reference's agents, or random play and a human."""


@dataclass(frozen=True, kw_only=True, slots=True)
class GameSetting:
    """How a game's agents are measured."""

    window: int
    """Episodes of the moving mean."""
    scale: Scale | None
    """Of the returns of the reference's episodes; none before one has ended."""
    reward_scale: Scale | None
    """Of the reward rates of the reference's intervals; none before an agent is finished."""
    human: Scale | None
    """Of returns."""
    level: float
    """The return to be reached; NaN where the reference does not improve."""

    def scale_of(self, measure: Measure) -> Scale | None:
        """Return the reference's scale for a measure; a drawdown is a share already."""
        return {"area": self.reward_scale, "final": self.scale, "drawdown": RAW}[measure]


@dataclass(frozen=True, kw_only=True, slots=True)
class Differences:
    """Ours less the reference's: raw in one game; over games in the reference's deviations.

    None where no pair has the measure.
    """

    area: IntervalEstimate | None
    gain: IntervalEstimate | None
    """The area's, as a share of the reference's; none where rewards can be negative or its area is
    0 in a game."""
    final: IntervalEstimate | None
    drawdown: IntervalEstimate | None
    """A share of what had been gained; below 0 is steadier."""
    improvement: IntervalEstimate
    """Probability that one of our agents has the larger area."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Comparison:
    """An initialization against the reference."""

    initialization: str
    reference: str
    runs: int
    """Meta-training runs of the initialization."""
    reference_runs: int | None
    """None where the reference's agents start at random: the baseline, or the runs' own starts."""
    normalized_by: str
    """The initialization whose standard deviations are the unit of differences over games."""
    pairs: Mapping[str, int]
    """Pairs of agents a run, by game; games without any are missing."""
    games: Mapping[str, Differences]
    """By game, those with a pair."""
    over_games: Differences | None
    """None without pairs."""
    final_margin: float
    """The final performance is not inferior if it is at most this much below the reference's, in
    its deviations; 0 where the reference gained nothing in any game."""
    middle: IntervalEstimate | None
    """Interquartile mean of our normalised areas."""
    reference_middle: IntervalEstimate | None

    @property
    def primary_effect(self) -> IntervalEstimate | None:
        """The effect that the verdict judges: the area's gain or, without one, its difference."""
        return None if self.over_games is None else self.over_games.gain or self.over_games.area


class Aggregate(NamedTuple):
    """An initialization's score over games."""

    games: tuple[str, ...]
    """Those with agents and, for human scores, with such a score."""
    interquartile_mean: IntervalEstimate


@dataclass(frozen=True, kw_only=True, slots=True)
class Summary:
    """Measures, comparisons and verdict of an evaluation."""

    evaluation: EvaluationResults
    settings: Mapping[str, GameSetting]
    agents: Mapping[tuple[str, str], Sequence[AgentMeasures]]
    """By initialization and game, in the order of runs and seeds."""
    aggregates: Mapping[tuple[str, Measure, Yardstick], Aggregate]
    """By initialization, measure and yardstick."""
    comparisons: tuple[Comparison, ...] = ()
    """Of every initialization with the reference, and with its runs' own random starts."""
    verdict: tuple[str, ...] = ()
    """In plain words: each comparison, and what to keep in mind."""

    @property
    def reference(self) -> str:
        """The initialization that others are compared with: the baseline, else the first."""
        return self.evaluation.initializations[0]

    @property
    def has_baseline(self) -> bool:
        return self.reference == RANDOM

    def values(self, initialization: str, game: str, measure: Measure) -> FloatArray:
        """Return a measure of K runs' agents, [K, agents]; NaN where unfinished or restarted."""
        runs = len(self.evaluation.runs[initialization])
        found = np.full((runs, self.evaluation.agents_per_game), np.nan)
        for agent in self.agents[initialization, game]:
            if not agent.curve.restarted:
                found[agent.curve.run, agent.curve.seed] = getattr(agent, measure)
        return found


def complete_pairs(*sides: FloatArray) -> list[FloatArray]:
    """Return each side's values [K, agents] at the n seeds at which no agent lacks one, [K, n]."""
    whole = np.all([np.isfinite(side).all(axis=0) for side in sides], axis=0)
    return [side.compress(whole, axis=1) for side in sides]
