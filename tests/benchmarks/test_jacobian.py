from __future__ import annotations

import pytest
import torch
from torch import Tensor

from benchmarks.harness.jacobian import jacobian_blocks, relative_precision


def bowl(theta: Tensor, curvature: Tensor) -> Tensor:
    """½ θᵀAθ, whose every Jacobian is I − αA."""
    return 0.5 * theta @ curvature @ theta


def test_on_a_bowl_it_is_a_power() -> None:
    root = torch.randn(4, 4, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    curvature = root @ root.T
    start = torch.ones(4, dtype=torch.float64)
    step = torch.eye(4, dtype=torch.float64) - 0.1 * curvature
    blocks = jacobian_blocks(bowl, start, batches=[curvature] * 3, lr=0.1, block=[0, 2])
    for i, block in enumerate(blocks, start=1):
        whole = torch.linalg.matrix_power(step, i)
        torch.testing.assert_close(block, whole[[0, 2]][:, [0, 2]])


def test_alone_a_block_is_a_power_of_its_own() -> None:
    root = torch.randn(4, 4, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    curvature, start = root @ root.T, torch.ones(4, dtype=torch.float64)
    batches = [curvature] * 3
    blocks = jacobian_blocks(bowl, start, batches=batches, lr=0.1, block=[0, 2], block_alone=True)
    step = torch.eye(2, dtype=torch.float64) - 0.1 * curvature[[0, 2]][:, [0, 2]]
    for i, block in enumerate(blocks, start=1):
        torch.testing.assert_close(block, torch.linalg.matrix_power(step, i))


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
