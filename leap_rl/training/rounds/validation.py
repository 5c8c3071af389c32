"""Validation of the initialization while it is meta-trained.

Every so many meta-steps a round has slots that judge what it starts from: games that are learned
like the others, but whose contributions do not count. Their tasks have the same seeds in each such
round, so that all versions learn with the same heads, emulators and draws, and version 0 is the
baseline that the others are compared with.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from statistics import fmean, pstdev
from typing import Any

from leap_rl.core.seeding import Purpose, derive_seed
from leap_rl.learners.task import TaskSpec
from leap_rl.storage.dataclass_from_json import dataclass_from_json
from leap_rl.training.messages import TaskRecord
from leap_rl.training.rounds.plan import FilledSlot

RATE_UNIT = 1000
"""Agent steps that rewards are counted by."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Validation:
    """Which games validate the initialization, and when."""

    every_meta_steps: int
    """From meta-step 0 on."""
    games: tuple[str, ...]
    agents: int = 1
    """That learn each game."""

    def specs(self, seed: int, meta_step: int) -> list[TaskSpec]:
        """Return the tasks that judge the initialization of a meta-step; mostly none."""
        if meta_step % self.every_meta_steps:
            return []
        return [
            TaskSpec(
                game=game,
                # The first agent's seed does not depend on how many there are.
                seed=derive_seed(
                    seed, Purpose.TASK, "validation", game, *([agent] if agent else [])
                ),
                validates=True,
            )
            for game in self.games
            for agent in range(self.agents)
        ]


@dataclass(frozen=True, kw_only=True, slots=True)
class ValidationState:
    """How the versions of an initialization did in validation; in a checkpoint's state.json."""

    baseline: Mapping[str, Mapping[str, Sequence[float]]] = field(default_factory=dict)
    """By game and task seed, the area under the curve of version 0's agent and the standard
    deviation of its curve."""
    best: int | None = None
    """The version with the highest gain so far; the earlier one of equals."""
    best_gain: float = -math.inf

    @classmethod
    def from_state(cls, state: Mapping[str, Any]) -> ValidationState:
        """Return what a checkpoint's state holds.

        Raises:
            KeyError, TypeError, ValueError: It is no such state.
        """
        if "validation" not in state:
            return cls()
        found = dataclass_from_json(cls, state["validation"])
        judged = found.best is not None
        if not isinstance(found.baseline, dict) or judged == (found.best_gain == -math.inf):
            raise TypeError("its validation is none")
        if not all(isinstance(agents, Mapping) for agents in found.baseline.values()):
            raise ValueError("its validation is of an earlier leap_rl, which measured otherwise")
        for agents in found.baseline.values():
            for pair in agents.values():
                mean, deviation = pair
                if not (type(mean) is type(deviation) is float):
                    raise TypeError("its validation is none")
        return found

    def state(self) -> dict[str, Any]:
        if self.best is None:  # none judged yet, here or, with a baseline, in a fork
            return {"validation": {"baseline": self.baseline}} if self.baseline else {}
        return {"validation": asdict(self)}

    def for_fork(self) -> ValidationState:
        """Return the state that a fork with the same validation starts with.

        The best version may be one that the fork does not have.
        """
        return ValidationState(baseline=self.baseline)

    def judge(
        self, version: int, slots: Sequence[FilledSlot]
    ) -> tuple[ValidationState, dict[str, float | int]]:
        """Return the state after a version's tasks, and the metrics of its meta-step's row.

        These are by game the area under the learning curve and its gain over version 0's, means
        over agents; the mean gain over games, in standard deviations of version 0's curves; and
        the agents behind it, in the game with the fewest. A task that began again with another
        seed does not count: version 0's agent did not have that seed.
        """
        agents: dict[str, dict[str, list[float]]] = {}
        for slot in slots:
            series = [] if slot.restarts else learning_curve(slot.record)
            if series:
                of_game = agents.setdefault(slot.spec.game, {})
                of_game[str(slot.spec.seed)] = [fmean(series), pstdev(series)]
        baseline = self.baseline or agents
        gains: dict[str, float] = {}
        counts, metrics = [], dict[str, float | int]()
        for game, found in agents.items():
            metrics[f"validation/{game}/area"] = fmean(area for area, _ in found.values())
            pairs = [(found[seed], was) for seed, was in baseline.get(game, {}).items()
                     if seed in found]  # fmt: skip
            if pairs:
                gain = fmean(area - before for (area, _), (before, _) in pairs)
                deviation = fmean(deviation for _, (_, deviation) in pairs)
                metrics[f"validation/{game}/gain"] = gain
                gains[game] = gain / deviation if deviation > 0 else 0.0
                counts.append(len(pairs))
        if not gains:
            return self, metrics
        gain = fmean(gains.values())
        better = self.best is None or gain > self.best_gain
        best, best_gain = (version, gain) if better else (self.best, self.best_gain)
        assert best is not None
        metrics |= {"validation/gain": gain, "validation/best": best}
        metrics["validation/agents"] = min(counts)
        return ValidationState(baseline=baseline, best=best, best_gain=best_gain), metrics


def learning_curve(record: TaskRecord) -> list[float]:
    """Return how well a task went in each interval of its budget; more is better.

    Raw reward per 1,000 agent steps, of episodes that never ended too; where there are no rewards,
    minus the training error, or minus the loss.
    """
    if any(point.rewards is None for point in record.curve):
        name = "training_error" if "training_error" in record.losses else "total"
        return [-point.losses[name] for point in record.curve]
    series, start = [], 0
    for point in record.curve:
        series.append(RATE_UNIT * (point.rewards or 0.0) / (point.agent_steps - start))
        start = point.agent_steps
    return series
