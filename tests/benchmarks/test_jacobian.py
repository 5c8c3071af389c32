from __future__ import annotations

import pytest
import torch
from torch import Tensor

from benchmarks.harness.jacobian import jacobian_blocks, relative_precision


def bowl(theta: Tensor, curvature: Tensor) -> Tensor:
    """½ θᵀAθ, whose every Jacobian is I − αA."""
    return 0.5 * theta @ curvature @ theta


@pytest.mark.parametrize("alone", [False, True])
def test_on_a_bowl_it_is_a_power_of_the_step_or_alone_of_the_steps_block(alone: bool) -> None:
    root = torch.randn(4, 4, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    curvature, start = root @ root.T, torch.ones(4, dtype=torch.float64)
    batches, block = [curvature] * 3, [0, 2]
    blocks = jacobian_blocks(bowl, start, batches=batches, lr=0.1, block=block, block_alone=alone)
    step = torch.eye(4, dtype=torch.float64) - 0.1 * curvature
    for i, found in enumerate(blocks, start=1):
        power = torch.linalg.matrix_power
        expected = power(step[block][:, block], i) if alone else power(step, i)[block][:, block]
        torch.testing.assert_close(found, expected)


def test_it_is_the_derivative_of_the_end_by_the_start() -> None:
    def quartic(theta: Tensor, batch: Tensor) -> Tensor:
        return ((theta - batch) ** 4).sum() / 4 + theta.prod()

    batches = list(torch.randn(3, 3, generator=torch.Generator().manual_seed(1)).double())
    start = torch.tensor([0.3, -0.2, 0.5], dtype=torch.float64)

    def end(theta: Tensor) -> Tensor:
        for batch in batches:
            theta = theta - 0.05 * torch.func.grad(quartic)(theta, batch)
        return theta

    *_, last = jacobian_blocks(quartic, start, batches=batches, lr=0.05, block=range(3))
    torch.testing.assert_close(last, torch.func.jacrev(end)(start))
    assert not torch.allclose(last, last.T)


def test_relative_precision_of_a_diagonal() -> None:
    jacobian = torch.diag(torch.tensor([0.5, 1.0, 2.0]))
    assert relative_precision(jacobian) == pytest.approx((0.5 + 0.0 + 1.0) / 3.5)
    assert relative_precision(torch.eye(3)) == 0.0
