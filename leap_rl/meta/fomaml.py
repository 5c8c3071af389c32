"""First-order MAML: the gradient at the end of the path (Finn et al., ICML 2017, section 5.2).

MAML descends the loss after K updates, on a batch of its own. With every Jacobian of the updates
taken as the identity, as in Leap, a task contributes grad_f(theta_K), where f is the loss of one
more batch, which is not stepped on. One batch of an agent's is mostly noise: the gradient may be
averaged over several.

Dimensions: P flattened shared parameters, K updates.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from leap_rl.meta.point import Point
from leap_rl.meta.reptile import DisplacementPath


@dataclass(frozen=True)
class FOMAML:
    """The method.

    Args:
        end_batches: batches at the end of the path over which the gradient is averaged.
    """

    end_batches: int = 1

    name: ClassVar[str] = "fomaml"
    keeps_tasks: ClassVar[bool] = False

    def start(self, theta0: Tensor, *, borrow: bool = False) -> FOMAMLPath:
        """Begin a task's path at `theta0`, float32 [P]; see `Method.start`.

        Raises:
            ValueError: not a float32 vector.
            NonFiniteError: a parameter is NaN or infinite.
        """
        return FOMAMLPath(theta0, borrow=borrow)


class FOMAMLPath(DisplacementPath):
    """A path that contributes the gradient at its last point; it follows theta for logs alone."""

    def __init__(self, theta0: Tensor, *, borrow: bool) -> None:
        super().__init__(theta0, borrow=borrow)
        self._grad = torch.zeros_like(self._theta0)

    def _extend(self, point: Point, loss: float, ends_at: float, where: str) -> None:
        if point.grad is None:
            raise ValueError(f"grad: MAML, of either order, needs it at {where}; give it to finish")
        super()._extend(point, loss, ends_at, where)
        self._grad = self._kept(point.grad, self._grad)

    def gradient(self) -> Tensor:
        """grad_f at the last point so far: float32 [P], a fresh tensor; a pure read.

        Of a path that is not finished it is what the path would contribute if it ended there; 0
        before the first point.
        """
        return self._grad.clone()

    def state_dict(self) -> dict[str, Tensor]:
        """All that a fresh path from the same theta0 and method needs, copied."""
        return super().state_dict() | {"grad": self._grad.clone()}

    def _load(self, state: Mapping[str, Tensor]) -> None:
        super()._load(state)
        self._grad = state["grad"].clone()
