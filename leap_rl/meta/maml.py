"""MAML of first and second order: the gradient at the end of the path (Finn et al., ICML 2017).

MAML descends the loss after K updates, on a batch of its own. The Leap paper compares itself with
it in section 4.1, where tasks are supervised and K = 5: a task itself then differentiates
f(theta_K) by theta_0, since it alone can compute its updates again, and shows that gradient at the
path's end.

First-order MAML (section 5.2 there) takes every Jacobian of the updates for the identity, as Leap
does: a task contributes grad_f(theta_K), where f is the loss of one more batch, which is not
stepped on. One batch of an agent's is mostly noise: the gradient may be averaged over several.

Dimensions: P flattened shared parameters, K updates.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from leap_rl.meta.gradient_path import Method
from leap_rl.meta.point import Point
from leap_rl.meta.reptile import DisplacementPath


class FOMAMLPath(DisplacementPath):
    """A path that contributes the gradient at its last point; it follows theta for logs alone."""

    _saved = (*DisplacementPath._saved, "grad")

    def __init__(self, theta0: Tensor, *, borrow: bool) -> None:
        super().__init__(theta0, borrow=borrow)
        self._grad = torch.zeros_like(self._theta0)

    def _extend(self, point: Point, loss: float, ends_at: float, where: str) -> None:
        if point.grad is None:
            raise ValueError(f"grad: MAML, of either order, needs it at {where}; give it to finish")
        super()._extend(point, loss, ends_at, where)
        self._grad = self._held(point.grad, self._grad)

    def gradient(self) -> Tensor:
        """grad_f at the last point so far, 0 before the first: float32 [P], a fresh tensor."""
        return self._grad.clone()


@dataclass(frozen=True)
class FOMAML(Method):
    """First-order MAML.

    Args:
        end_batches: batches at the end of the path over which the gradient is averaged.
    """

    end_batches: int = 1

    name = "fomaml"
    path = FOMAMLPath


@dataclass(frozen=True)
class MAML(Method):
    """MAML; it has nothing to set.

    Its tasks must be asked for the gradient by their start. As long as a path is not finished its
    gradient is the first-order one.
    """

    name = "maml"
    path = FOMAMLPath
    end_batches = 1
