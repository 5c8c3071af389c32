"""Records a running task: losses, episodes, its learning curve, its speed."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from leap_rl.learners.task import EpisodeEnd, Progress
from leap_rl.storage.dataclass_from_json import dataclass_from_json, is_count
from leap_rl.training.messages import CURVE_POINTS, CurvePoint, Episodes, TaskProgress

RECENT_EPISODES = 100
"""Episodes in the mean return that is shown while a task runs."""


@dataclass(kw_only=True, slots=True)
class LossMean:
    """Means of the losses, each over the updates that had it."""

    counts: dict[str, int] = field(default_factory=dict)
    sums: dict[str, float] = field(default_factory=dict)

    def add(self, losses: Mapping[str, float]) -> None:
        for name, value in losses.items():
            self.counts[name] = self.counts.get(name, 0) + 1
            self.sums[name] = self.sums.get(name, 0.0) + value

    def means(self) -> dict[str, float]:
        return {name: total / self.counts[name] for name, total in self.sums.items()}


@dataclass
class TaskRecorder:
    """Takes in a task's progress, update by update."""

    agent_steps_total: int
    """The task's budget."""
    clock: Callable[[], float] = time.monotonic
    """Monotonic seconds."""
    started_s: float | None = None
    """When work on the task began, on the clock; none for now."""
    losses: LossMean = field(default_factory=LossMean)
    updates: int = 0
    agent_steps: int = 0
    curve: list[CurvePoint] = field(default_factory=list)
    _episodes: list[EpisodeEnd] = field(default_factory=list)
    _interval_rewards: float | None = None
    _recent: deque[float] = field(default_factory=lambda: deque(maxlen=RECENT_EPISODES))

    def __post_init__(self) -> None:
        now = self.clock()
        self._started_s = now if self.started_s is None else self.started_s
        self._live_mark = (now, 0)
        self._open_interval()

    @property
    def working_s(self) -> float:
        """Seconds of work on the task, including those before its snapshot."""
        return self.clock() - self._started_s

    def add(self, progress: Progress) -> None:
        self.updates = progress.updates
        self.agent_steps = progress.agent_steps
        self.losses.add(progress.losses)
        self._interval_losses.add(progress.losses)
        if progress.rewards is not None:
            self._interval_rewards = (self._interval_rewards or 0.0) + progress.rewards
        self._episodes.extend(progress.episodes)
        self._recent.extend(episode.episode_return for episode in progress.episodes)
        # Intervals end at agent steps, never at times: a repeated task has the same curve.
        # A script's updates on one batch are at the same agent step: they are in one interval.
        _, begin, _ = self._interval_mark
        point = len(self.curve) + 1
        reached = self.agent_steps * CURVE_POINTS >= point * self.agent_steps_total
        if reached and self.agent_steps > begin:
            self._close_interval()

    def end(self) -> None:
        """Close the interval in which a task ended before its budget did, if one is open."""
        _, begin, _ = self._interval_mark
        if self._interval_losses.counts and (self.agent_steps > begin or not self.curve):
            self._close_interval()

    def progress(self) -> TaskProgress:
        """Return how the task stands, with its speed since the last call."""
        now = self.clock()
        then, agent_steps = self._live_mark
        self._live_mark = (now, self.agent_steps)
        return TaskProgress(
            agent_steps=self.agent_steps,
            agent_steps_per_s=(self.agent_steps - agent_steps) / max(now - then, 1e-9),
            mean_return=float(np.mean(self._recent)) if self._recent else None,
        )

    def episodes(self) -> Episodes:
        return Episodes(
            agent_steps=np.array([e.agent_steps for e in self._episodes], dtype=np.int64),
            returns=np.array([e.episode_return for e in self._episodes], dtype=np.float64),
            lengths=np.array([e.length for e in self._episodes], dtype=np.int64),
        )

    def state(self) -> tuple[dict[str, NDArray[Any]], dict[str, Any]]:
        """Return all that was taken in, as arrays and as plain values."""
        then, agent_steps, episodes = self._interval_mark
        metrics = {
            "updates": self.updates,
            "agent_steps": self.agent_steps,
            "losses": asdict(self.losses),
            "curve": [asdict(point) for point in self.curve],
            "interval": {
                "losses": asdict(self._interval_losses),
                "rewards": self._interval_rewards,
                "elapsed_s": self.clock() - then,
                "agent_steps": agent_steps,
                "episodes": episodes,
            },
            "working_s": self.working_s,
        }
        return asdict(self.episodes()), metrics

    def restore(self, arrays: Mapping[str, NDArray[Any]], metrics: Mapping[str, Any]) -> None:
        """Take in what `state` returned; TypeError, KeyError or ValueError if it is no such."""
        columns = (arrays[name].tolist() for name in ("agent_steps", "returns", "lengths"))
        self._episodes = [EpisodeEnd(*row) for row in zip(*columns, strict=True)]
        self._recent.extend(episode.episode_return for episode in self._episodes)
        self.updates, self.agent_steps = metrics["updates"], metrics["agent_steps"]
        self.losses = _losses_of(metrics["losses"])
        self.curve = [dataclass_from_json(CurvePoint, point) for point in metrics["curve"]]
        now, interval = self.clock(), metrics["interval"]
        rewards = interval["rewards"]
        counted = (self.updates, self.agent_steps, interval["agent_steps"], interval["episodes"])
        if not all(map(is_count, counted)) or not (
            rewards is None or type(rewards) in (int, float)
        ):
            raise TypeError(f"records of {counted} and {rewards!r:.80}")
        self._interval_losses = _losses_of(interval["losses"])
        self._interval_rewards = interval["rewards"]
        then = now - interval["elapsed_s"]
        self._interval_mark = (then, interval["agent_steps"], interval["episodes"])
        self._started_s -= metrics["working_s"]
        self._live_mark = (now, self.agent_steps)

    def _open_interval(self) -> None:
        self._interval_losses = LossMean()
        self._interval_rewards = None
        self._interval_mark = (self.clock(), self.agent_steps, len(self._episodes))

    def _close_interval(self) -> None:
        then, agent_steps, episodes = self._interval_mark
        returns = [episode.episode_return for episode in self._episodes[episodes:]]
        elapsed_s = max(self.clock() - then, 1e-9)
        self.curve.append(
            CurvePoint(
                agent_steps=self.agent_steps,
                losses=self._interval_losses.means(),
                episodes=len(returns),
                return_sum=float(sum(returns)),
                agent_steps_per_s=(self.agent_steps - agent_steps) / elapsed_s,
                rewards=self._interval_rewards,
            )
        )
        self._open_interval()


def _losses_of(values: Mapping[str, Any]) -> LossMean:
    found = dataclass_from_json(LossMean, values)
    if found.counts.keys() != found.sums.keys() or 0 in found.counts.values():
        raise ValueError(f"losses of {', '.join(found.counts)} and of {', '.join(found.sums)}")
    return found
