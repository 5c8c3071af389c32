"""The gradient through gradient descent, by torch.func: what MAML takes (Finn et al., ICML 2017).

    θᵢ₊₁ = θᵢ − α ∇f(θᵢ; batchᵢ),  i = 0 … K−1;    the result is  d f(θᴷ; last batch) / d θ⁰

with every Hessian in it, where a first-order method takes each Jacobian dθᵢ₊₁/dθᵢ for the identity.

N: parameters.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

from torch import Tensor
from torch.func import grad, grad_and_value

B = TypeVar("B")


def gradient_through_descent(
    loss: Callable[[Tensor, B], Tensor],
    start: Tensor,
    *,
    batches: Sequence[B],
    last_batch: B,
    lr: float,
) -> tuple[Tensor, Tensor]:
    """Descend from a point and differentiate where that leads by where it began.

    Args:
        loss: f(θ, batch), 0-d, differentiable twice by θ, [N].
        start: θ⁰, [N].
        batches: One an update.
        last_batch: On which the end is judged.
        lr: α.

    Returns:
        d f(θᴷ) / d θ⁰, [N], and f(θᴷ), 0-d. Memory grows with the number of updates.
    """

    def end_loss(theta: Tensor) -> Tensor:
        for batch in batches:
            theta = theta - lr * grad(loss)(theta, batch)
        return loss(theta, last_batch)

    gradient, value = grad_and_value(end_loss)(start)
    return gradient, value
