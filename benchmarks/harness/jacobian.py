"""How good the identity approximates the Jacobians, as in the paper's appendix of that name.

    Jⁱ⁺¹(θ⁰) = (I − α H(θⁱ)) Jⁱ(θ⁰),   J⁰ = I,      ρ(i) = ‖I − Jⁱ‖₁ / ‖Jⁱ‖₁

with the Schatten 1-norm, of the block of some parameters, the first layer's in the paper: how their
values after i updates change with their values at the start, through all parameters in between.

Dimensions: N parameters, C of them at the start of the vector that the block is of.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TypeVar

import torch
from torch import Tensor

B = TypeVar("B")


def jacobian_blocks(
    loss: Callable[[Tensor, B], Tensor],
    start: Tensor,
    *,
    batches: Sequence[B],
    lr: float,
    block: Sequence[int],
    block_alone: bool = False,
) -> Iterator[Tensor]:
    """Descend from a point, and yield after each update the block of its Jacobian, [C, C].

    One Hessian-vector product for each column and update: C double backward passes an update.

    Args:
        loss: f(θ, batch), 0-d, differentiable twice by θ, [N].
        start: θ⁰, [N].
        batches: One an update.
        lr: α.
        block: Which C of the parameters.
        block_alone: Leave out what goes through the other parameters, as if these did not depend on
            the block: the recursion with the Hessian's block alone.
    """
    theta = start.detach().clone()
    indices = torch.tensor(list(block))
    columns = torch.zeros(len(block), len(theta), dtype=theta.dtype)  # Jⁱ's, one a row: [C, N]
    columns[torch.arange(len(block)), indices] = 1.0
    for batch in batches:
        theta.requires_grad_()
        (gradient,) = torch.autograd.grad(loss(theta, batch), theta, create_graph=True)
        for column in columns:
            (curved,) = torch.autograd.grad(gradient, theta, column, retain_graph=True)
            if block_alone:
                column[indices] -= lr * curved[indices]
            else:
                column.sub_(curved, alpha=lr)
        theta = (theta - lr * gradient).detach()
        yield columns[:, indices].T.clone()


def relative_precision(jacobian: Tensor) -> float:
    """Return ρ of a Jacobian's block, [C, C]."""
    jacobian = jacobian.double()
    identity = torch.eye(len(jacobian), dtype=torch.float64)
    norms = [torch.linalg.matrix_norm(part, "nuc") for part in (identity - jacobian, jacobian)]
    return float(norms[0] / norms[1])
