"""Leap: the gradient of a gradient path's length or energy (Flennerhag et al., ICLR 2019, eq. 8).

The path of a task runs over its loss surface, through the points (theta_i, c f(theta_i)), where c
is `loss_scale`. With every Jacobian taken as the identity, as in the paper, the task contributes

    -p sum_i (c^2 df_i grad_f(theta_i) + dtheta_i) |dgamma_i|^(p-2),   dgamma_i = (dtheta_i, c df_i)

where i runs over the K segments, one an update, dtheta_i = theta_{i+1} - theta_i and df_i is the
loss difference. Without the loss in the path its term and its share of the norm are absent.

That measures parameters by the Euclidean metric, in which plain gradient descent is steepest. An
optimizer that scales its gradient, dtheta = -a S grad_f, descends steepest in the metric
G = (a S)^-1. Measured by that, |dtheta|_G^2 = -dtheta . grad_f, the decrease of the loss that the
gradient predicts; and the gradient, raised to a vector by G^-1 = a S, turns a S grad_f into
-dtheta. With k = c^2 the task contributes

    -p sum_i (1 - k df_i) |dgamma_i|^(p-2) dtheta_i,   |dgamma_i|^2 = -dtheta_i . grad_f + k df_i^2

The stabilizer puts -|df_i| for df_i in both. `docs/methods.md` derives it.

Dimensions: P flattened shared parameters, K updates.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from leap_rl.meta.gradient_path import Method, Point
from leap_rl.meta.relatives import DisplacementPath
from leap_rl.meta.vectors import BlockSum, NonFiniteError, check_finite, dot, norm

_LARGEST = torch.finfo(torch.float32).max
"""Of a weight that vectors of float32 are added with."""


@dataclass(frozen=True)
class Leap(Method):
    """The method: which distance along the path is made shorter.

    Args:
        p: 2 for the path's energy, 1 for its length (eq. 3).
        loss_in_path: whether the path runs over the loss surface or the parameters alone.
        stabilizer: replace each loss difference df by -|df|, so that a loss that rose by chance
            does not push the initialization uphill (the paper's mu, section 2.3).
        loss_scale: c, the unit of the loss against that of the parameters. The paper gives none;
            the loss term grows with its square.
        metric: how parameters are measured. euclidean: eq. 8 as printed. optimizer: by the metric
            in which the inner optimizer's step is steepest descent; for plain gradient descent the
            two are the same but for their units.
        task_unit: whether, in the optimizer's metric, each task's distance is measured in a unit of
            its own, the mean over its segments of (1 + k |df|) |dgamma|^(p-2), held fixed like the
            path's forward points. The contribution then is p times a weighted sum of the steps
            taken whose weights are 1 on average: as long as Reptile's, whatever the loss's scale.
            For p = 1 the mean is over the way gone, sum w |dtheta| / sum |dtheta|: one over the
            segments would be owned by those of nearly no length, whose 1 / |dgamma| has no bound.

    Raises:
        ValueError: a field out of its range.
    """

    p: Literal[1, 2] = 2
    loss_in_path: bool = True
    stabilizer: bool = True
    loss_scale: float = 1.0
    metric: Literal["euclidean", "optimizer"] = "euclidean"
    task_unit: bool = False

    name = "leap"

    def __post_init__(self) -> None:
        if self.p not in (1, 2):
            raise ValueError(f"p = {self.p}: must be 1 (length) or 2 (energy)")
        if not (math.isfinite(self.loss_scale) and self.loss_scale > 0):
            raise ValueError(
                f"loss_scale = {self.loss_scale}: must be finite and greater than 0; "
                "for a path without the loss set loss_in_path to False"
            )
        if self.metric not in ("euclidean", "optimizer"):
            raise ValueError(f"metric = {self.metric!r}: must be 'euclidean' or 'optimizer'")
        if self.task_unit and self.metric == "euclidean":
            raise ValueError(
                "task_unit = True: is a unit of the optimizer's metric; set metric to 'optimizer'"
            )

    @property
    def kappa(self) -> float:
        """k, the weight of the loss in the path: c^2, or 0 without the loss in it."""
        return self.loss_scale**2 if self.loss_in_path else 0.0

    def start(self, theta0: Tensor, *, borrow: bool = False) -> LeapPath:
        path = EuclideanPath if self.metric == "euclidean" else OptimizerMetricPath
        return path(self, theta0, borrow=borrow)


class LeapPath(DisplacementPath):
    """One task's path, segment by segment; how a segment counts is the metric's."""

    _saved = (*DisplacementPath._saved, "distance", "loss")

    def __init__(self, method: Leap, theta0: Tensor, *, borrow: bool) -> None:
        super().__init__(theta0, borrow=borrow)
        self._method = method
        self._needs_loss = method.loss_in_path
        self._distance = 0.0  # sum of |dgamma|^p
        # Where the open segment starts, beside theta.
        self._loss = 0.0
        self._grad = torch.zeros_like(self._theta0)

    def _extend(self, point: Point, loss: float, ends_at: float, where: str) -> None:
        self._check_point(point, where)
        theta, step_length = point.theta, point.step_length
        if self._points > 0:
            if step_length is None:
                step_length = norm(theta - self._theta)
            if not math.isfinite(step_length):
                # A square overflowed in float32, or theta is not finite.
                check_finite("theta", theta, where)
                difference = theta.double() - self._theta.double()
                step_length = float(torch.linalg.vector_norm(difference))
            loss_difference = ends_at - self._loss
            if max(1.0, self._method.kappa) * abs(loss_difference) > _LARGEST:
                raise NonFiniteError(
                    f"the loss at {where} changed by {loss_difference:g}: too much"
                )
            self._close_segment(theta, step_length, loss_difference)
        self._loss = loss
        self._theta = self._held(theta, self._theta)
        if point.grad is not None:
            self._grad = self._held(point.grad, self._grad)

    @abstractmethod
    def _close_segment(self, theta: Tensor, step_length: float, loss_difference: float) -> None:
        """Add the term of the segment that ends at `theta`, and its distance."""

    def metrics(self) -> dict[str, float]:
        """What `DisplacementPath.metrics` has; and the distance so far, the sum of |dgamma|^p.

        That is the `energy` with p = 2, the `length` with p = 1.
        """
        distance = "energy" if self._method.p == 2 else "length"
        return super().metrics() | {distance: self._distance}


class EuclideanPath(LeapPath):
    """The running sum of eq. 8 as printed."""

    def __init__(self, method: Leap, theta0: Tensor, *, borrow: bool) -> None:
        super().__init__(method, theta0, borrow=borrow)
        self._needs_gradient = method.loss_in_path
        # The sums of eq. 8, without -p. With p = 2 the dtheta telescope and need none.
        self._loss_sum = self._delta_sum = None
        if method.loss_in_path:
            self._loss_sum = BlockSum(self._theta0)
            self._saved += ("grad", "loss_sum")
        if method.p == 1:
            self._delta_sum = BlockSum(self._theta0)
            self._saved += ("delta_sum",)

    def _close_segment(self, theta: Tensor, step_length: float, loss_difference: float) -> None:
        method = self._method
        length = step_length
        if method.loss_in_path:
            length = math.hypot(step_length, method.loss_scale * loss_difference)
        self._distance += length**method.p
        if length == 0.0:
            return  # Its term is zero, though the formula for p = 1 would divide by it.
        scale = length ** (method.p - 2)
        if self._loss_sum is not None:
            pull = -abs(loss_difference) if method.stabilizer else loss_difference
            self._loss_sum.add(self._grad, weight=method.loss_scale**2 * pull * scale)
        if self._delta_sum is not None:
            self._delta_sum.add(theta - self._theta, weight=scale)

    def gradient(self) -> Tensor:
        """Eq. 8 over the segments closed so far: float32 [P], a fresh tensor; a pure read."""
        total = self._displacement() if self._delta_sum is None else self._delta_sum.value()
        if self._loss_sum is not None:
            total += self._loss_sum.value()
        return total.mul_(-self._method.p).to(torch.float32)

    def metrics(self) -> dict[str, float]:
        """What `LeapPath.metrics` has; and `loss_pull`, the norm of the loss term's part of eq. 8.

        It is without the factor p (with p = 2 and the stabilizer |sum c^2 |df| grad_f|), and 0
        without the loss in the path.
        """
        pull = 0.0
        if self._loss_sum is not None:
            pull = torch.linalg.vector_norm(self._loss_sum.value()).item()
        return super().metrics() | {"loss_pull": pull}


class OptimizerMetricPath(LeapPath):
    """The running sum in the metric in which the inner optimizer's step is steepest descent.

    The metric is in none of its terms: the optimizer's own steps say all of it. That it is one
    metric along the path, as the derivation takes it, holds for a constant S. Under clipping,
    momentum, and a scaling that changes it is a rule of thumb; where momentum makes the predicted
    decrease -dtheta . grad_f negative, it counts as 0.
    """

    _saved = (*LeapPath._saved, "grad", "sum", "weighted", "weights", "squared_weights")

    def __init__(self, method: Leap, theta0: Tensor, *, borrow: bool) -> None:
        super().__init__(method, theta0, borrow=borrow)
        self._needs_gradient = method.p == 1
        self._sum = BlockSum(self._theta0)
        # Of the segments' weights (1 + k |df|) |dgamma|^(p-2): how many, their sum, their squares'.
        self._weighted = 0
        self._weights = 0.0
        self._squared_weights = 0.0
        # The same weights along the way gone: sum w |dtheta| and sum |dtheta|.
        self._weighted_way = self._way = 0.0
        if method.p == 1:
            self._saved += ("weighted_way", "way")

    def visit(self, point: Point) -> None:
        """Close the segment that ends at a point and open the next; see `GradientPath.observe`.

        With p = 2 the gradient may be left out: the energy is then not known, the contribution is.
        """
        super().visit(point)
        if point.grad is None:
            self._distance = math.nan

    def _close_segment(self, theta: Tensor, step_length: float, loss_difference: float) -> None:
        method, kappa = self._method, self._method.kappa
        delta = theta - self._theta
        squared = kappa * loss_difference**2
        if not math.isnan(self._distance):
            squared += max(-dot(delta, self._grad), 0.0)
        self._distance += squared ** (method.p / 2)
        stands_still = step_length == 0.0 and loss_difference == 0.0
        if stands_still or (method.p == 1 and squared == 0.0):
            return  # a segment of length 0 adds nothing, as in eq. 8
        scale = 1.0 if method.p == 2 else 1.0 / math.sqrt(squared)
        weight = (1.0 + kappa * abs(loss_difference)) * scale
        self._weighted += 1
        self._weights += weight
        self._squared_weights += weight**2
        self._weighted_way += weight * step_length
        self._way += step_length
        pull = weight if method.stabilizer else (1.0 - kappa * loss_difference) * scale
        self._sum.add(delta, weight=pull)

    def gradient(self) -> Tensor:
        factor = float(-self._method.p)
        if self._method.task_unit:
            factor /= self._unit()
        return self._sum.value().mul_(factor).to(torch.float32)

    def _unit(self) -> float:
        """The mean weight: over the segments for p = 2, over the way gone for p = 1."""
        if self._method.p == 1:
            return self._weighted_way / self._way if self._way else 1.0
        return self._weights / self._weighted if self._weighted else 1.0

    def metrics(self) -> dict[str, float]:
        """What `LeapPath.metrics` has, without the energy where no gradients were given.

        And of the segments' weights (1 + k |df|) |dgamma|^(p-2): `mean_weight`; and
        `effective_segments`, (their sum)^2 / sum of their squares, as a share of the segments: 1
        where all count alike, near 0 where one owns the sum.
        """
        metrics = super().metrics()
        if math.isnan(self._distance):
            del metrics["energy"]
        if self._weighted:
            effective = self._weights**2 / self._squared_weights
            metrics["mean_weight"] = self._weights / self._weighted
            metrics["effective_segments"] = effective / self._weighted
        return metrics
