"""Reptile: towards where each task's agent ended (Nichol et al., arXiv:1803.02999, algorithm 2).

A task contributes theta0 - theta_K, so that plain SGD with rate epsilon is the paper's
theta0 + epsilon mean(theta_K - theta0). It is a special case of Leap (Flennerhag et al., ICLR 2019,
section 3): of the energy, p = 2, of a path that leaves the loss out, which telescopes to
p (theta0 - theta_K). The factor p is Leap's alone.

Dimensions: P flattened shared parameters, K updates.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from leap_rl.meta.gradient_path import GradientPath
from leap_rl.meta.point import Point
from leap_rl.meta.vectors import check_finite


@dataclass(frozen=True)
class Reptile:
    """The method; it has nothing to set."""

    name: ClassVar[str] = "reptile"
    end_batches: ClassVar[int] = 0
    keeps_tasks: ClassVar[bool] = False

    def start(self, theta0: Tensor, *, borrow: bool = False) -> DisplacementPath:
        """Begin a task's path at `theta0`, float32 [P]; see `Method.start`.

        Raises:
            ValueError: not a float32 vector.
            NonFiniteError: a parameter is NaN or infinite.
        """
        return DisplacementPath(theta0, borrow=borrow)


class DisplacementPath(GradientPath):
    """A path of which only the two ends count: it contributes theta0 - theta."""

    def __init__(self, theta0: Tensor, *, borrow: bool) -> None:
        super().__init__(theta0)
        self._borrow = borrow
        self._theta = self._theta0.clone()  # the last point

    def _extend(self, point: Point, loss: float, ends_at: float, where: str) -> None:
        self._check_point(point, where)
        if point.step_length is None or not math.isfinite(point.step_length):
            check_finite("theta", point.theta, where)
        self._theta = self._kept(point.theta, self._theta)

    def _kept(self, vector: Tensor, buffer: Tensor) -> Tensor:
        return vector.detach() if self._borrow else buffer.copy_(vector)

    def _displacement(self) -> Tensor:
        """theta - theta0, float64 [P]."""
        return self._theta.double() - self._theta0.double()

    def gradient(self) -> Tensor:
        """theta0 - theta at the last point so far: float32 [P], a fresh tensor; a pure read."""
        return self._displacement().neg_().to(torch.float32)

    def metrics(self) -> dict[str, float]:
        """Scalars for logs; a pure read.

        Returns:
            `displacement`: |theta - theta0|, and what every path has.
        """
        return super().metrics() | {
            "displacement": torch.linalg.vector_norm(self._displacement()).item()
        }

    def state_dict(self) -> dict[str, Tensor]:
        """All that a fresh path from the same theta0 and method needs, copied."""
        return super().state_dict() | {"theta": self._theta.clone()}

    def _load(self, state: Mapping[str, Tensor]) -> None:
        super()._load(state)
        self._theta = state["theta"].clone()
