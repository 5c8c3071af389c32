"""What there is to say of an evaluation, as plain data. `comparison.py` makes it.

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
from leap_rl.evaluation.results import Evaluation
from leap_rl.evaluation.statistics import Estimate, FloatArray
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
        scales = {"area": self.reward_scale, "final": self.scale, "drawdown": RAW}
        return scales[measure]


@dataclass(frozen=True, kw_only=True, slots=True)
class Differences:
    """Ours less the reference's: raw in one game; over games in the reference's deviations.

    None where no pair has the measure.
    """

    area: Estimate | None
    gain: Estimate | None
    """The area's, as a share of the reference's; none where rewards can be negative or its area is
    0 in a game."""
    final: Estimate | None
    drawdown: Estimate | None
    """A share of what had been gained; below 0 is steadier."""
    improvement: Estimate
    """Probability that one of our agents has the larger area."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Comparison:
    """An initialization against the reference."""

    initialization: str
    reference: str
    runs: int
    """Meta-training runs of the initialization."""
    reference_runs: int | None
    """Those of the reference; none where its agents start at random: the baseline, or the runs'
    own starts."""
    normalized_by: str
    """Whose deviations are the unit of differences over games."""
    seeds: Mapping[str, int]
    """Pairs of agents a run, by game; games without any are missing."""
    games: Mapping[str, Differences]
    """By game, those with a pair."""
    over_games: Differences | None
    """None without pairs."""
    final_margin: float
    """By how much the final performance may be below the reference's and still be called not
    inferior, in its deviations; 0 where the reference gained nothing in any game."""
    middle: Estimate | None
    """Interquartile mean of our normalised areas."""
    reference_middle: Estimate | None

    @property
    def judged(self) -> Estimate | None:
        """What the verdict is on: the area's gain or, where there is none, its difference."""
        return None if self.over_games is None else self.over_games.gain or self.over_games.area


class Aggregate(NamedTuple):
    """An initialization's score over games."""

    games: tuple[str, ...]
    """Those with agents and, for human scores, with such a score."""
    interquartile_mean: Estimate


@dataclass(frozen=True, kw_only=True, slots=True)
class Summary:
    """All that is to be said of an evaluation."""

    evaluation: Evaluation
    settings: Mapping[str, GameSetting]
    """By game."""
    agents: Mapping[tuple[str, str], Sequence[AgentMeasures]]
    """Finished agents by initialization and game, in the order of runs and seeds."""
    aggregates: Mapping[tuple[str, Measure, Yardstick], Aggregate]
    """By initialization, measure and yardstick."""
    comparisons: tuple[Comparison, ...] = ()
    """Of every initialization with the reference, and with its runs' own random starts."""
    verdict: tuple[str, ...] = ()
    """In plain words: each comparison, and what to keep in mind."""

    @property
    def reference(self) -> str:
        """What initializations are set against: the baseline where there is one, else the first."""
        return self.evaluation.initializations[0]

    @property
    def has_baseline(self) -> bool:
        """Whether the reference is agents whose encoders start at random."""
        return self.reference == RANDOM

    def values(self, initialization: str, game: str, measure: Measure) -> FloatArray:
        """Return a measure of K runs' agents, [K, seeds]; NaN where unfinished or restarted."""
        runs = len(self.evaluation.runs[initialization])
        found = np.full((runs, self.evaluation.seeds), np.nan)
        for agent in self.agents[initialization, game]:
            if not agent.curve.restarted:
                found[agent.curve.run, agent.curve.seed] = getattr(agent, measure)
        return found


def whole_seeds(*sides: FloatArray) -> list[FloatArray]:
    """Return each side's values [K, seeds] at the seeds of which all agents have one, [K, n]."""
    whole = np.all([np.isfinite(side).all(axis=0) for side in sides], axis=0)
    return [side.compress(whole, axis=1) for side in sides]
