"""Observations that are vectors, standardised by running statistics of what an agent has seen.

As Gymnasium's `NormalizeObservation` and Stable-Baselines3's `VecNormalize` do: each number less
its running mean, over its running deviation, and clipped. Means and variances are float64, merged
step by step by the parallel formula of Chan, Golub and LeVeque 1983, "Algorithms for Computing the
Sample Variance". Unlike theirs the statistics start empty, so that they are exactly those of all
observations, not of a first guess too.

B: environments. V: length of an observation.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from leap_rl.envs.state import Actions, Observations, State
from leap_rl.envs.vector import GameVector, VectorStep

BOUND: Final = 10.0
"""Standardised numbers are clipped to [-BOUND, BOUND]."""
EPSILON: Final = 1e-8
"""Added to the variance, under the root."""
STATISTICS: Final = ("observations.mean", "observations.variance")
"""The names, in an agent's file, of the statistics that `standardised` takes, float64 [V] each."""
_PREFIX = "normalization."


def standardised(
    observations: Observations, mean: NDArray[np.float64], variance: NDArray[np.float64]
) -> NDArray[np.float32]:
    """Return observations [..., V], less their mean [V] and over their deviation, clipped."""
    scaled = (observations - mean) / np.sqrt(variance + EPSILON)
    return np.clip(scaled, -BOUND, BOUND).astype(np.float32)


class RunningMoments:
    """Mean and variance of all vectors so far; the variance is that of these, not an estimate."""

    def __init__(self, length: int) -> None:
        self.count = 0
        self.mean = np.zeros(length)
        self._squares = np.zeros(length)  # of the deviations from the mean, summed

    @property
    def variance(self) -> NDArray[np.float64]:
        return self._squares / max(self.count, 1)

    def add(self, vectors: Observations) -> None:
        """Merge in the moments of vectors, [B, V]."""
        added = len(vectors)
        mean = vectors.mean(0, dtype=np.float64)
        squares = np.square(vectors - mean).sum(0)
        total = self.count + added
        difference = mean - self.mean
        self.mean = self.mean + difference * (added / total)
        self._squares = self._squares + squares + difference**2 * (self.count * added / total)
        self.count = total

    def state(self) -> State:
        count = np.array(self.count, dtype=np.int64)
        return {"count": count, "mean": self.mean.copy(), "squares": self._squares.copy()}

    def restore(self, state: Mapping[str, NDArray[Any]]) -> None:
        self.count = int(state["count"])
        self.mean, self._squares = state["mean"].copy(), state["squares"].copy()


class NormalizedVector(GameVector):
    """Games whose observations, vectors, are standardised as they come; the rest is theirs.

    Each step counts what is acted on next, [B, V], before it is standardised, so that already the
    first observations are of the scale that the network is made for. The last observation of an
    episode does not count, but is standardised alike where it is shown.
    """

    def __init__(self, games: GameVector) -> None:
        self.num_envs, self.num_actions = games.num_envs, games.num_actions
        self.continuous, self.observation_shape = games.continuous, games.observation_shape
        (length,) = self.observation_shape
        self._games = games
        self.moments = RunningMoments(length)

    def reset(self) -> Observations:
        return self._counted(self._games.reset())

    def step(self, actions: Actions) -> VectorStep:
        step = self._games.step(actions)
        if step.ignored is None:
            observations = self._counted(step.observations)
        else:  # what ends an episode is shown, and not acted on
            acted_on = ~(step.terminated | step.truncated)
            if acted_on.any():
                self.moments.add(step.observations[acted_on])
            observations = self._standardised(step.observations)
        last = {index: self._standardised(one) for index, one in step.last_observations.items()}
        return replace(step, observations=observations, last_observations=last)

    def state(self) -> State:
        own = {f"{_PREFIX}{name}": array for name, array in self.moments.state().items()}
        return self._games.state() | own

    def restore(self, state: Mapping[str, NDArray[Any]]) -> Observations:
        own = {name: array for name, array in state.items() if name.startswith(_PREFIX)}
        theirs = {name: array for name, array in state.items() if name not in own}
        self.moments.restore({name.removeprefix(_PREFIX): own[name] for name in own})
        return self._standardised(self._games.restore(theirs))

    def move_to(self, other: GameVector) -> None:
        self._games.move_to(other)

    def close(self) -> None:
        self._games.close()

    def _counted(self, observations: Observations) -> NDArray[np.float32]:
        self.moments.add(observations)
        return self._standardised(observations)

    def _standardised(self, observations: Observations) -> NDArray[np.float32]:
        return standardised(observations, self.moments.mean, self.moments.variance)
