"""What there is to say of an evaluation, as plain data. `comparison.py` makes it.

Over games each game counts the same; a pair is two agents of the same game and seed, one of them of
the reference. The area is raw reward per 1,000 agent steps, the final performance a raw return.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

from leap_rl.evaluation.measures import AgentMeasures
from leap_rl.evaluation.normalization import Scale
from leap_rl.evaluation.results import Evaluation
from leap_rl.evaluation.statistics import Estimate, Mean
from leap_rl.training.rounds.agents import RANDOM

Measure: TypeAlias = Literal["area", "final"]
Yardstick: TypeAlias = Literal["baseline", "human"]
"""What scores are normalised by: the reference's agents, or random play and a human."""
Agents: TypeAlias = Mapping[tuple[str, str], Sequence[AgentMeasures]]
"""By initialization and game, in the order of runs and seeds: agents that are finished."""


@dataclass(frozen=True, kw_only=True, slots=True)
class GameSetting:
    """How a game's agents are measured."""

    game: str
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
        """Return the reference's scale for a measure."""
        return self.reward_scale if measure == "area" else self.scale


@dataclass(frozen=True, kw_only=True, slots=True)
class GameScores:
    """The agents of an initialization in a game."""

    initialization: str
    game: str
    agents: int
    """At least one."""
    area: Mean
    final: Mean | None
    """None where no agent finished an episode."""
    human_final: float | None
    """Mean human-normalised final performance; none for a game without human scores."""
    drawdown: Mean | None
    spread: float
    """Over agents, in deviations of the reference's episodes; NaN below two agents."""
    agent_steps_to_level: float
    """Median over agents; infinite where most do not get there, NaN where there is no level."""
    reached_level: int
    """Agents that got there."""


@dataclass(frozen=True, kw_only=True, slots=True)
class GameComparison:
    """An initialization against the reference in one game; differences are ours less theirs."""

    game: str
    seeds: int
    """Those of which all agents of both sides are finished and began but once."""
    area_difference: Mean
    """Raw."""
    area_gain: Mean | None
    """As a share of the reference's; none where rewards can be negative or its area is 0."""
    final_difference: Mean | None
    """None where no seed has it."""
    drawdown_difference: Mean | None
    """A share; below 0 is steadier."""
    spread_ratio: float | None
    """Ours over theirs; below 1 is steadier. None where it is not defined."""
    improvement: Estimate
    """Probability that one of our agents has the larger area."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Comparison:
    """An initialization against the reference; over games each counts the same."""

    initialization: str
    reference: str
    runs: int
    """Meta-training runs of the initialization."""
    reference_runs: int | None
    """Those of the reference; none where its agents start at random: the baseline, or the runs'
    own starts."""
    normalized_by: str
    """Whose deviations are the unit of differences over games."""
    games: tuple[GameComparison, ...]
    """Those with a pair."""
    area_gain: Mean | None
    """None unless every game has one."""
    area_difference: Mean | None
    """In deviations of the reward rates; None without pairs."""
    final_difference: Mean | None
    """In deviations of the returns of episodes; None without pairs."""
    final_margin: float
    """By how much the final performance may be below the reference's and still be called not
    inferior, in the same unit; 0 where the reference gained nothing in any game."""
    drawdown_difference: Mean | None
    """A share of what had been gained."""
    spread_ratio: Mean | None
    """Geometric mean over games, and its interval over them."""
    improvement: Estimate | None
    middle: Estimate | None
    """Interquartile mean of our normalised areas."""
    reference_middle: Estimate | None

    @property
    def seeds(self) -> tuple[int, int]:
        """The fewest and the most seeds of a game; 0 without any."""
        counts = [game.seeds for game in self.games]
        return min(counts, default=0), max(counts, default=0)


@dataclass(frozen=True, kw_only=True, slots=True)
class Aggregate:
    """An initialization's score over games."""

    initialization: str
    measure: Measure
    yardstick: Yardstick
    games: tuple[str, ...]
    """Those with agents and, for human scores, with such a score."""
    interquartile_mean: Estimate


@dataclass(frozen=True, kw_only=True, slots=True)
class Summary:
    """All that is to be said of an evaluation, except in words (`verdict.py`)."""

    evaluation: Evaluation
    reference: str
    """What initializations are set against: the baseline where there is one, else the first."""
    settings: Mapping[str, GameSetting]
    """By game."""
    agents: Agents
    scores: tuple[GameScores, ...]
    aggregates: tuple[Aggregate, ...] = ()
    comparisons: tuple[Comparison, ...] = ()
    """Of every initialization with the reference, and with its runs' own random starts."""

    @property
    def has_baseline(self) -> bool:
        """Whether the reference is agents whose encoders start at random."""
        return self.reference == RANDOM
