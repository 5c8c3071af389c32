"""RMSProp on a flat vector, in one pass over memory.

The rule is `torch.optim.RMSprop`'s: g the gradient, v its running mean square, α the decay,

    v ← α v + (1 − α) g²        θ ← θ − lr g / (√v + ε)

with ε outside the root. One compiled loop takes a third of the time of torch's own, which makes
five passes over vectors that fit no cache (`benchmarks/hot_loop.py`).

torch starts v at zero. The first step is then lr / √(1 − α) in every coordinate, ten rates with
α = 0.99, which no learned initialization survives. Two other starts are offered: Adam's bias
correction, v / (1 − αᵗ) in place of v at update t (Kingma and Ba 2015, algorithm 1), and v = 1,
which is TensorFlow's.

N: flattened parameters. P: of those, the shared ones, which come first.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from leap_rl.core.kernels import kernel
from leap_rl.learners.config import RMSPropStart
from leap_rl.networks.parameters import FlatParameters

_LANES = 16
"""Sums run side by side. Parameters are aligned to as many elements."""


class RMSProp:
    """Changes all parameters at once; `start` says what v is before the first update."""

    def __init__(
        self,
        flat: FlatParameters,
        *,
        lr: float,
        alpha: float,
        eps: float,
        start: RMSPropStart = "zero",
    ) -> None:
        self.mean_square = torch.full_like(flat.vector, 1.0 if start == "one" else 0.0)
        self.updates = 0
        self._corrects_bias = start == "bias_corrected"
        self._flat = flat
        self._lr = lr
        self._alpha = alpha
        self._eps = eps

    def step(self, shared_size: int, *, grad_scale: float = 1.0) -> float:
        """Take a step along the gradient times `grad_scale`; the gradient stays as it is.

        Returns:
            The length of the step of the first P parameters; NaN where any of the N parameters or
            a running mean is no longer finite.
        """
        flat = self._flat
        self.updates += 1
        step = self._step_compiled if flat.vector.device.type == "cpu" else self._step_torch
        shared, others = step(shared_size, grad_scale)
        flat.swap()
        return math.sqrt(shared) if math.isfinite(shared) and math.isfinite(others) else math.nan

    def state_dict(self) -> dict[str, Tensor]:
        return {"mean_square": self.mean_square.clone(), "updates": torch.tensor(self.updates)}

    def load_state_dict(self, state: Mapping[str, Tensor]) -> None:
        check_same_shape("mean_square", state["mean_square"], self.mean_square)
        self.mean_square.copy_(state["mean_square"])
        self.updates = int(state["updates"])

    @property
    def _correction(self) -> float:
        return 1.0 / (1.0 - self._alpha**self.updates) if self._corrects_bias else 1.0

    def _step_compiled(self, shared_size: int, grad_scale: float) -> tuple[float, float]:
        flat = self._flat
        squares = torch.zeros((2, _LANES), dtype=torch.float64)
        # A float32 array, as numba takes a Python number for a float64.
        rates = torch.tensor(
            [self._lr, self._alpha, 1.0 - self._alpha, self._eps, grad_scale, self._correction]
        ).numpy()
        _step(
            flat.vector.numpy(),
            flat.grad.numpy(),
            self.mean_square.numpy(),
            flat.spare.numpy(),
            shared_size,
            rates,
            squares.numpy(),
        )
        shared, others = squares
        return shared.sum().item(), others.sum().item()

    @torch.no_grad()
    def _step_torch(self, shared_size: int, grad_scale: float) -> tuple[float, float]:
        flat, mean_square = self._flat, self.mean_square
        theta, grad, new_theta = flat.vector, flat.grad * grad_scale, flat.spare
        mean_square.mul_(self._alpha).addcmul_(grad, grad, value=1.0 - self._alpha)
        new_theta.copy_(theta)
        root = mean_square.mul(self._correction).sqrt_()
        new_theta.addcdiv_(grad, root.add_(self._eps), value=-self._lr)
        moved = new_theta - theta + (mean_square - mean_square)
        squares = moved.double().square()
        return squares[:shared_size].sum().item(), squares[shared_size:].sum().item()


def check_same_shape(name: str, tensor: Tensor, like: Tensor) -> None:
    """Raise ValueError for a part of a state whose shape or type is another one."""
    if tensor.shape != like.shape or tensor.dtype != like.dtype:
        raise ValueError(
            f"state: {name} is {tensor.dtype} {list(tensor.shape)}: must be {like.dtype} "
            f"{list(like.shape)}; it was made by another network"
        )


def norm(vector: Tensor) -> float:
    """Return the length of a flat vector, float32 [N] on any device, summed in float64."""
    if vector.device.type != "cpu":
        return float(torch.linalg.vector_norm(vector, dtype=torch.float64))
    squares = torch.zeros(_LANES, dtype=torch.float64)
    _add_squares(vector.view(-1, _LANES).numpy(), squares.numpy())
    return math.sqrt(squares.sum())


@kernel
def _add_squares(vector: Any, squares: Any) -> None:
    """Add the squares of [N / 16, 16] to the float64 sums [16]."""
    for row in range(vector.shape[0]):
        for lane in range(16):
            element = 1.0 * vector[row, lane]
            squares[lane] += element * element


@kernel
def _step(
    theta: Any,
    grad: Any,
    mean_square: Any,
    new_theta: Any,
    shared_size: int,
    rates: Any,
    squares: Any,
) -> None:
    """Write the next point [N]; add the squares of what has moved to float64 sums [2, 16].

    The first sums are those of the shared parameters.
    """
    rows, shared = len(theta) // 16, shared_size // 16
    by_lane = (rows, 16)
    theta, grad = theta.reshape(by_lane), grad.reshape(by_lane)
    mean_square, new_theta = mean_square.reshape(by_lane), new_theta.reshape(by_lane)
    _rmsprop(
        theta[:shared], grad[:shared], mean_square[:shared], new_theta[:shared], rates, squares[0]
    )
    _rmsprop(
        theta[shared:], grad[shared:], mean_square[shared:], new_theta[shared:], rates, squares[1]
    )


@kernel
def _rmsprop(
    theta: Any, grad: Any, mean_square: Any, new_theta: Any, rates: Any, squares: Any
) -> None:
    """Write the next point; add the squares of what has moved to the float64 sums [16].

    The vectors are [N / 16, 16]: the inner loop then is one operation on registers, and the order
    in which the squares are added is written down instead of left to the compiler.
    """
    lr, alpha, rest, eps, scale, correction = (
        rates[0],
        rates[1],
        rates[2],
        rates[3],
        rates[4],
        rates[5],
    )
    for row in range(theta.shape[0]):
        for lane in range(16):
            g = scale * grad[row, lane]
            v = alpha * mean_square[row, lane] + rest * g * g
            mean_square[row, lane] = v
            new = theta[row, lane] - lr * g / (math.sqrt(correction * v) + eps)
            new_theta[row, lane] = new
            # The step as it was rounded, now in float64. v - v is NaN where the gradient's square
            # overflowed: the parameter would stand still from then on, and nobody would know.
            moved = 1.0 * (new - theta[row, lane] + (v - v))
            squares[lane] += moved * moved
