"""Noisy quadratic bowls: tasks whose gradient paths have closed forms, for tests and for debugging.

Every bowl has its own lowest point c and curvatures a; one batch sees it displaced by noise ξ:

    f(θ) = ½ Σ_j a_j (θ_j − c_j − σ ξ_j)²,    ξ ~ N(0, 1 / agent steps in the batch)

and the agent descends it by plain gradient descent.

Dimensions: P flattened shared parameters.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from numpy.typing import NDArray
from torch import Tensor

from leap_rl.core.seeding import Purpose, derive_seed
from leap_rl.learners.descent import DescentTask
from leap_rl.learners.task import Observe, Progress, TaskSpec, TaskState
from leap_rl.meta.gradient_path import Point

DIMENSION = 32
"""P: few enough to look at, and more than one cache line of the flat vector."""

NOISE = 0.1
"""σ."""

_FAMILY_SEED = 0
"""A bowl is the same bowl in every run, as a game is the same game."""


@dataclass(frozen=True, slots=True)
class Bowl:
    """One quadratic: its lowest point, [P], and its curvatures, [P]."""

    lowest: Tensor
    curvature: Tensor


def bowl(game: str) -> Bowl:
    """Return the bowl of that name: lowest point from N(0, 1), curvatures from U(0.5, 1.5)."""
    generator = torch.Generator().manual_seed(derive_seed(_FAMILY_SEED, Purpose.DATA, game))
    lowest = torch.randn(DIMENSION, generator=generator)
    return Bowl(lowest, 0.5 + torch.rand(DIMENSION, generator=generator))


def quadratic_loss(theta: Tensor, bowl: Bowl, displacement: Tensor) -> tuple[Tensor, Tensor]:
    """Return f(θ), 0-d, and ∇f(θ), [P], of a bowl displaced by ``displacement``, [P]."""
    residual = theta - bowl.lowest - displacement
    gradient = bowl.curvature * residual
    return 0.5 * (gradient @ residual), gradient


class QuadraticTask(DescentTask):
    """Descends one bowl with the learning rate α `lr`; the noise is drawn from the task's seed."""

    def __init__(self, spec: TaskSpec, *, lr: float, **budget: Any) -> None:
        super().__init__(**budget)
        self._theta = torch.zeros(DIMENSION)
        self._bowl = bowl(spec.game)
        self._lr = lr
        self._noise = torch.Generator().manual_seed(derive_seed(spec.seed, Purpose.DATA))

    def advance(self, observe: Observe) -> Progress:
        displacement = self._displacement()
        loss, gradient = quadratic_loss(self._theta, self._bowl, displacement)
        observe(self._point(self._theta, loss, gradient))
        self._theta = self._theta - self._lr * gradient  # the last point stays as it is
        self._count_update(lambda: quadratic_loss(self._theta, self._bowl, displacement)[0])
        return self._progress({"total": float(loss)})

    def end_point(self, *, with_grad: bool) -> Point:
        loss, gradient = quadratic_loss(self._theta, self._bowl, self._displacement())
        return self._point(self._theta, loss, gradient if with_grad else None)

    def _load_shared(self, shared: Tensor) -> None:
        self._theta = shared.clone()

    def _own_state(self) -> TaskState:
        return {"theta": self._theta.numpy().copy(), "noise": self._noise.get_state().numpy()}

    def _restore_own(self, state: Mapping[str, NDArray[Any]]) -> None:
        self._theta = torch.from_numpy(state["theta"].reshape(DIMENSION).copy())
        self._noise.set_state(torch.from_numpy(state["noise"].copy()))

    def named_parameters(self) -> dict[str, Tensor]:
        return {"theta": self._theta.clone()}

    def _displacement(self) -> Tensor:
        noise = torch.randn(DIMENSION, generator=self._noise)
        deviation: float = NOISE / self._agent_steps_per_update**0.5
        return deviation * noise
