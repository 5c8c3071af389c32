"""Sets the agents of two groups side by side, seed by seed.

A seed of a game counts where every run of both groups has an agent of it that is finished, began
but once and has a value: one whose task was dropped, or restarted with another seed, takes the
agents it was to be compared with along.

Dimensions: K runs of a group, n seeds of a game.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

import numpy as np

from leap_rl.evaluation.measures import (
    AgentMeasures,
    final_performance,
    first_performance,
    grid,
    on_grid,
    spread_over_seeds,
)
from leap_rl.evaluation.results import Evaluation
from leap_rl.evaluation.statistics import (
    Estimate,
    FloatArray,
    Mean,
    improvement_interval,
    relative_gains,
)
from leap_rl.evaluation.summary import GameSetting, Summary
from leap_rl.evaluation.two_level import two_level_mean
from leap_rl.seeding import Purpose, derive_seed

PairedMeasure: TypeAlias = Literal["area", "final", "drawdown"]


def whole_seeds(agents: Sequence[AgentMeasures], runs: int, of: PairedMeasure) -> list[int]:
    """Return the seeds of which every run has an agent with a value, that began but once."""
    counts: dict[int, int] = {}
    for agent in agents:
        if not agent.restarted and math.isfinite(getattr(agent, of)):
            counts[agent.seed] = counts.get(agent.seed, 0) + 1
    return sorted(seed for seed, count in counts.items() if count == runs)


def by_run(
    agents: Sequence[AgentMeasures], runs: int, seeds: Sequence[int], of: PairedMeasure
) -> FloatArray:
    """Return a measure's values, [K, n]."""
    values = {(agent.run, agent.seed): getattr(agent, of) for agent in agents}
    return np.array([[values[run, seed] for seed in seeds] for run in range(runs)])


def gain_of_agents(evaluation: Evaluation, name: str, game: str) -> tuple[float, float]:
    """Return a group's mean first and final performance, raw returns; NaN without episodes."""
    curves = [curve for curve in evaluation.of(name, game) if len(curve.returns)]
    if not curves:
        return math.nan, math.nan
    budget = evaluation.agent_steps
    first, final = (
        float(np.mean([performance(curve, budget) for curve in curves]))
        for performance in (first_performance, final_performance)
    )
    return first, final


def spread(evaluation: Evaluation, name: str, setting: GameSetting, seeds: Sequence[int]) -> float:
    """Return the spread over the agents of these seeds, in raw returns."""
    points = grid(evaluation.agent_steps)
    curves = [curve for curve in evaluation.of(name, setting.game) if curve.seed in seeds]
    return spread_over_seeds([on_grid(curve, points, setting.window) for curve in curves])


@dataclass(frozen=True, slots=True)
class Pairs:
    """An initialization's agents and a reference's, side by side."""

    summary: Summary
    name: str
    reference: str

    def games(self) -> list[str]:
        """Return those with a seed that counts."""
        return [game for game in self.summary.settings if self.seeds(game)]

    def seeds(self, game: str, of: PairedMeasure = "area") -> list[int]:
        """Return those that count."""
        ours, theirs = (
            whole_seeds(self.summary.agents[name, game], self._runs(name), of)
            for name in self._both()
        )
        return sorted({*ours} & {*theirs})

    def values(self, game: str, of: PairedMeasure) -> tuple[FloatArray, FloatArray]:
        """Return a measure's values, ours and theirs, [K, n] each."""
        seeds = self.seeds(game, of)
        ours, theirs = (
            by_run(self.summary.agents[name, game], self._runs(name), seeds, of)
            for name in self._both()
        )
        return ours, theirs

    def difference(self, game: str, of: PairedMeasure) -> Mean | None:
        """Return the raw difference in a game; None without a pair."""
        ours, theirs = self.values(game, of)
        return self._mean([(ours, theirs)]) if ours.size else None

    def difference_over_games(self, of: PairedMeasure) -> Mean | None:
        """Return the difference in the reference's deviations; None without a pair."""
        strata = []
        for game, setting in self.summary.settings.items():
            ours, theirs = self.values(game, of)
            unit = self._unit(setting, of)
            if ours.size and unit is not None:
                strata.append((ours / unit, theirs / unit))
        return self._mean(strata) if strata else None

    def margin(self, share: float) -> float:
        """Return a share of what the reference gained, in deviations, on the mean over games.

        Where it lost, it gained nothing.
        """
        gains = []
        for game, setting in self.summary.settings.items():
            if self.seeds(game, "final") and setting.scale is not None:
                first, final = gain_of_agents(self.summary.evaluation, self.reference, game)
                gains.append(max(final - first, 0.0) / setting.scale.unit)
        return share * float(np.mean(gains)) if gains else 0.0

    def gain(self, games: Sequence[str]) -> Mean | None:
        """Return the area's gain, over games; None where 0 is no natural beginning in one."""
        strata = []
        for game in games:
            ours, theirs = self.values(game, "area")
            if self._can_lose(game) or theirs.mean() <= 0:
                return None
            strata.append(relative_gains(ours, theirs))
        return self._mean(strata) if strata else None

    def spread_ratio(self, game: str) -> float | None:
        """Return our spread over theirs; None where one of them has none."""
        seeds = self.seeds(game)
        ours, theirs = (
            spread(self.summary.evaluation, name, self.summary.settings[game], seeds)
            for name in self._both()
        )
        return ours / theirs if ours > 0 and theirs > 0 else None

    def improvement(self, games: Sequence[str], seed: int) -> Estimate:
        """Return the probability that an agent of ours has the larger area."""
        ours, theirs = zip(*(self.values(game, "area") for game in games), strict=True)
        path = (self.name, self.reference, *games)
        return improvement_interval(ours, theirs, seed=derive_seed(seed, Purpose.BOOTSTRAP, *path))

    @property
    def _paired(self) -> bool:
        """Whether each run of ours has one agent of theirs a seed: their only one, or its own."""
        own = self.summary.evaluation.own_starts.get(self.name) == self.reference
        return own or 1 in (self._runs(self.name), self._runs(self.reference))

    def _mean(self, strata: Sequence[tuple[FloatArray, FloatArray]]) -> Mean:
        if self._paired:
            return two_level_mean([[ours - theirs for ours, theirs in strata]])
        return two_level_mean([[ours for ours, _ in strata], [-theirs for _, theirs in strata]])

    def _runs(self, name: str) -> int:
        return len(self.summary.evaluation.runs[name])

    def _can_lose(self, game: str) -> bool:
        evaluation = self.summary.evaluation
        return any(
            min(curve.returns.min(initial=0.0), curve.rewards.min(initial=0.0)) < 0
            for name in self._both()
            for curve in evaluation.of(name, game)
        )

    def _both(self) -> tuple[str, str]:
        return self.name, self.reference

    @staticmethod
    def _unit(setting: GameSetting, of: PairedMeasure) -> float | None:
        if of == "drawdown":
            return 1.0
        scale = setting.scale_of(of)
        return None if scale is None else scale.unit
