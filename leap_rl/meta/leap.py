"""Leap: the gradient of a gradient path's length or energy (Flennerhag et al., ICLR 2019, eq. 8).

The path of a task runs over its loss surface, through the points (theta_i, c f(theta_i)), where c
is `loss_scale`. With every Jacobian taken as the identity, as in the paper, the task contributes

    -p sum_i (c^2 df_i grad_f(theta_i) + dtheta_i) |dgamma_i|^(p-2),   dgamma_i = (dtheta_i, c df_i)

where i runs over the K segments, one an update, dtheta_i = theta_{i+1} - theta_i and df_i is the
loss difference. Without the loss in the path its term and its share of the norm are absent.

Dimensions: P flattened shared parameters, K updates.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, Literal

import torch
from torch import Tensor

from leap_rl.meta.gradient_path import ObservedPath
from leap_rl.meta.vectors import BlockSum, check_finite, norm


@dataclass(frozen=True)
class Leap:
    """The method: which distance along the path is made shorter.

    Args:
        p: 2 for the path's energy, 1 for its length (eq. 3).
        loss_in_path: whether the path runs over the loss surface or the parameters alone.
        stabilizer: replace each loss difference df by -|df|, so that a loss that rose by chance
            does not push the initialization uphill (the paper's mu, section 2.3).
        loss_scale: c, the unit of the loss against that of the parameters. The paper gives none;
            the loss term grows with its square.

    Raises:
        ValueError: a field out of its range.
    """

    p: Literal[1, 2] = 2
    loss_in_path: bool = True
    stabilizer: bool = True
    loss_scale: float = 1.0

    name: ClassVar[str] = "leap"
    needs_end_gradient: ClassVar[bool] = False
    keeps_tasks: ClassVar[bool] = False

    def __post_init__(self) -> None:
        if self.p not in (1, 2):
            raise ValueError(f"p = {self.p}: must be 1 (length) or 2 (energy)")
        if not (math.isfinite(self.loss_scale) and self.loss_scale > 0):
            raise ValueError(
                f"loss_scale = {self.loss_scale}: must be finite and greater than 0; "
                "for a path without the loss set loss_in_path to False"
            )

    def start(self, theta0: Tensor, *, borrow: bool = False) -> LeapPath:
        """Begin a task's path at `theta0`, float32 [P], which is copied.

        Args:
            theta0: where the path starts.
            borrow: the caller leaves each `theta` and `grad` that it shows unchanged until the next
                call has returned; the path then copies nothing, half of what it costs.

        Raises:
            ValueError: not a float32 vector.
            NonFiniteError: a parameter is NaN or infinite.
        """
        return LeapPath(self, theta0, borrow=borrow)


class LeapPath(ObservedPath):
    """One task's running sum of eq. 8."""

    def __init__(self, method: Leap, theta0: Tensor, *, borrow: bool) -> None:
        super().__init__(theta0)
        self._method = method
        self._borrow = borrow
        self._distance = 0.0  # sum of |dgamma|^p
        # The last point: where the open segment starts.
        self._theta = self._theta0.clone()
        self._loss = 0.0
        self._grad = torch.zeros_like(self._theta0)
        # The sums of eq. 8, without -p. With p = 2 the dtheta telescope and need none.
        self._loss_sum = BlockSum(self._theta0) if method.loss_in_path else None
        self._delta_sum = BlockSum(self._theta0) if method.p == 1 else None

    def _extend(
        self,
        theta: Tensor,
        loss: float,
        grad: Tensor | None,
        previous_batch_loss: float | None,
        step_length: float | None,
        where: str,
    ) -> None:
        self._check_point(theta, grad, step_length, where)
        if self._points > 0:
            if step_length is None:
                step_length = norm(theta - self._theta)
            if not math.isfinite(step_length):
                step_length = self._length_in_float64(theta, where)
            ends_at = loss if previous_batch_loss is None else previous_batch_loss
            self._close_segment(theta, step_length, ends_at - self._loss)
        self._loss = loss
        self._theta = self._kept(theta, self._theta)
        if grad is not None and self._loss_sum is not None:
            self._grad = self._kept(grad, self._grad)

    def _kept(self, vector: Tensor, buffer: Tensor) -> Tensor:
        return vector if self._borrow else buffer.copy_(vector)

    def _length_in_float64(self, theta: Tensor, where: str) -> float:
        """|dtheta| where a square overflowed in float32; refuses a theta that is not finite."""
        check_finite("theta", theta, where)
        return float(torch.linalg.vector_norm(theta.double() - self._theta.double()))

    def _close_segment(self, theta: Tensor, step_length: float, loss_difference: float) -> None:
        """Add the term of eq. 8 of the segment that ends at `theta`, and its length."""
        method = self._method
        if method.loss_in_path:
            length = math.hypot(step_length, method.loss_scale * loss_difference)
        else:
            length = step_length
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

    def figures(self) -> dict[str, float]:
        """Scalars for logs; a pure read.

        Returns:
            `energy` (p = 2) or `length` (p = 1): the distance so far, the sum of |dgamma|^p;
            `displacement`: |theta - theta0|;
            `loss_pull`: the norm of the loss term's part of the sum in eq. 8, without the factor p
            (with p = 2 and the stabilizer |sum c^2 |df| grad_f|); 0 without the loss in the path.
        """
        loss_sum = self._loss_sum
        return {
            "energy" if self._method.p == 2 else "length": self._distance,
            "displacement": torch.linalg.vector_norm(self._displacement()).item(),
            "loss_pull": (
                0.0 if loss_sum is None else torch.linalg.vector_norm(loss_sum.value()).item()
            ),
        }

    def _displacement(self) -> Tensor:
        return self._theta.double() - self._theta0.double()

    def state_dict(self) -> dict[str, Tensor]:
        """All that a fresh path from the same theta0 and method needs, copied."""
        state = super().state_dict() | {
            "distance": torch.tensor(self._distance, dtype=torch.float64),
            "theta": self._theta.clone(),
            "loss": torch.tensor(self._loss, dtype=torch.float64),
        }
        if self._loss_sum is not None:
            state["grad"] = self._grad.clone()
            state |= self._loss_sum.state_dict("loss_sum")
        if self._delta_sum is not None:
            state |= self._delta_sum.state_dict("delta_sum")
        return state

    def _load(self, state: Mapping[str, Tensor]) -> None:
        super()._load(state)
        self._distance = state["distance"].item()
        self._theta = state["theta"].clone()
        self._loss = state["loss"].item()
        if self._loss_sum is not None:
            self._grad = state["grad"].clone()
            self._loss_sum.load_state_dict(state, "loss_sum")
        if self._delta_sum is not None:
            self._delta_sum.load_state_dict(state, "delta_sum")
