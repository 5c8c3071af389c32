"""Reptile, multi-headed pretraining and MAML: methods that see a path's end alone.

Reptile (Nichol et al., arXiv:1803.02999, algorithm 2): a task contributes theta0 - theta_K, so that
plain SGD with rate epsilon is the paper's theta0 + epsilon mean(theta_K - theta0). It is a special
case of Leap (Flennerhag et al., ICLR 2019, section 3): of the energy, p = 2, of a path that leaves
the loss out, which telescopes to p (theta0 - theta_K). The factor p is Leap's alone.

Pretraining is the baseline of the Leap paper's section 4: one encoder trained on all games, each
with heads of its own. A game's agent, its heads, its optimizer and its episodes, is carried over
from one round to the next. A round trains each of its games for a few updates from the current
encoder, the games contribute theta0 - theta_K, and SGD with rate 1 makes their mean the next
encoder. With one update a round that is synchronous multi-task SGD: with an agent of plain SGD

    theta <- theta - lr mean over games of grad_f_game(theta).

With more, games drift apart within a round, as in federated averaging (McMahan et al., AISTATS
2017).

MAML (Finn et al., ICML 2017) descends the loss after K updates, on a batch of its own. The Leap
paper compares itself with it in section 4.1, where tasks are supervised and K = 5: a task itself
then differentiates f(theta_K) by theta_0, since it alone can compute its updates again, and passes
that gradient to `finish`. First-order MAML (section 5.2 there) takes every Jacobian of the updates
for the identity, as Leap does: a task contributes grad_f(theta_K), where f is the loss of one more
batch, which is not stepped on. One batch of an agent is mostly noise: the gradient may be averaged
over several.

Dimensions: P flattened shared parameters, K updates.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from leap_rl.meta.gradient_path import GradientPath, Method, Point
from leap_rl.meta.vectors import check_finite


class DisplacementPath(GradientPath):
    """A path that knows its last point; it contributes theta0 - theta."""

    _saved = (*GradientPath._saved, "theta")

    def __init__(self, theta0: Tensor, *, borrow: bool) -> None:
        super().__init__(theta0, borrow=borrow)
        self._theta = self._theta0.clone()  # the last point

    def _extend(self, point: Point, loss: float, ends_at: float, where: str) -> None:
        self._check_point(point, where)
        if point.step_length is None or not math.isfinite(point.step_length):
            check_finite("theta", point.theta, where)
        self._theta = self._held(point.theta, self._theta)

    def _held(self, vector: Tensor, buffer: Tensor) -> Tensor:
        return vector.detach() if self._borrow else buffer.copy_(vector)

    def _displacement(self) -> Tensor:
        """theta - theta0, float64 [P]."""
        return self._theta.double() - self._theta0.double()

    def gradient(self) -> Tensor:
        """theta0 - theta at the last point so far: float32 [P], a fresh tensor; a pure read."""
        return self._displacement().neg_().to(torch.float32)

    def metrics(self) -> dict[str, float]:
        """`displacement`: |theta - theta0|; and what every path has."""
        displacement = torch.linalg.vector_norm(self._displacement()).item()
        return super().metrics() | {"displacement": displacement}


@dataclass(frozen=True)
class Reptile(Method):
    """The method; it has nothing to set."""

    name = "reptile"
    path = DisplacementPath


@dataclass(frozen=True)
class Pretraining(Reptile):
    """The method; it contributes what Reptile does, and its tasks are carried over."""

    name = "pretraining"
    carries_agents = True


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
    """First-order MAML; `end_batches` are those at the path's end that its gradient averages."""

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
