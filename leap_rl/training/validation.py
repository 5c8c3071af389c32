"""Learning games from the initialization as it stands, while it is meta-trained.

A run that takes a week must not be blind. Every so many meta-steps a round has slots that judge
what it starts from: games that are learned like the others, but whose contributions count for
nothing. Their tasks have the same seeds in each such round, so that all versions learn with the
same heads, emulators and draws, and version 0 is the baseline that the others are compared with.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from statistics import fmean, pstdev
from typing import Any

from leap_rl.messages import TaskRecord
from leap_rl.seeding import Purpose, derive_seed
from leap_rl.tasks.task import TaskSpec
from leap_rl.training.rounds import FilledSlot


@dataclass(frozen=True, kw_only=True, slots=True)
class Validation:
    """Which games judge the initialization, and when.

    Args:
        every_meta_steps: From meta-step 0 on, one round of so many.
        games: Each is learned by one agent.
    """

    every_meta_steps: int
    games: tuple[str, ...]

    def specs(self, seed: int, meta_step: int) -> list[TaskSpec]:
        """Return the tasks that judge the initialization of a meta-step; mostly none."""
        if meta_step % self.every_meta_steps:
            return []
        return [
            TaskSpec(
                game=game, seed=derive_seed(seed, Purpose.TASK, "validation", game), validates=True
            )
            for game in self.games
        ]


@dataclass(frozen=True, kw_only=True, slots=True)
class Judgement:
    """How the versions of an initialization did in validation; plain values, kept in state.json."""

    baseline: Mapping[str, Sequence[float]] = field(default_factory=dict)
    """By game, version 0's area under the curve and the standard deviation of its curve."""
    best: int | None = None
    """The version with the highest gain so far; the earlier one of equals."""
    best_gain: float = -math.inf

    @classmethod
    def from_state(cls, state: Mapping[str, Any]) -> Judgement:
        """Return what a checkpoint's state holds.

        Raises:
            KeyError, TypeError, ValueError: It is no such state.
        """
        if "validation" not in state:
            return cls()
        return cls(**state["validation"])

    def state(self) -> dict[str, Any]:
        """Return what a checkpoint's state is to hold."""
        if self.best is None:
            return {}
        found = {"baseline": dict(self.baseline), "best": self.best, "best_gain": self.best_gain}
        return {"validation": found}

    def judge(
        self, version: int, slots: Sequence[FilledSlot]
    ) -> tuple[Judgement, dict[str, float | int]]:
        """Take in how a version did.

        Args:
            version: Of the initialization.
            slots: The tasks that judged it; those that were cut off say nothing.

        Returns:
            The new judgement, and the figures of the meta-step's row: by game the area under the
            learning curve and what it gained over version 0's, and the mean gain over games, in
            standard deviations of version 0's curves, in which games are alike.
        """
        curves = {
            slot.spec.game: series for slot in slots if len(series := learning_curve(slot.record))
        }
        if not curves:
            return self, {}
        areas = {game: fmean(series) for game, series in curves.items()}
        baseline = dict(self.baseline)
        for game, series in curves.items():
            baseline.setdefault(game, [areas[game], pstdev(series)])
        figures: dict[str, float | int] = {}
        gains = []
        for game, area in areas.items():
            before, deviation = baseline[game]
            figures[f"validation/{game}/area"] = area
            figures[f"validation/{game}/gain"] = area - before
            gains.append((area - before) / deviation if deviation > 0 else 0.0)
        gain = fmean(gains)
        better = self.best is None or gain > self.best_gain
        best, best_gain = (version, gain) if better else (self.best, self.best_gain)
        assert best is not None
        figures |= {"validation/gain": gain, "validation/best": best}
        return Judgement(baseline=baseline, best=best, best_gain=best_gain), figures


def learning_curve(record: TaskRecord) -> list[float]:
    """Return how well a task went in each interval of its budget; more is better.

    Mean raw returns, an interval in which no episode ended taking the value before it; where there
    are no episodes, minus the training error, or minus the loss.
    """
    if not any(point.episodes for point in record.curve):
        name = "training_error" if "training_error" in record.losses else "total"
        return [-point.losses[name] for point in record.curve]
    series: list[float] = []
    for point in record.curve:
        if point.episodes:
            series.append(point.return_sum / point.episodes)
        elif series:
            series.append(series[-1])
    return series
