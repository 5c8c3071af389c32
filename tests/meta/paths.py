"""Made-up paths, walked by a method, and how close two vectors are."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from typing import Any, NamedTuple

import torch
from torch import Tensor

P = 37
VARIANTS = list(product((1, 2), (True, False), (True, False)))
"""p, loss_in_path, stabilizer."""


class Point(NamedTuple):
    theta: Tensor
    loss: float
    grad: Tensor


def make_points(updates: int, *, size: int = P, seed: int = 0) -> list[Point]:
    """K + 1 points of a noisy path whose loss rises and falls; one parameter stands still."""
    generator = torch.Generator().manual_seed(seed)
    theta = torch.randn(size, generator=generator)
    points = []
    for _ in range(updates + 1):
        grad = torch.randn(size, generator=generator)
        grad[0] = 0.0
        points.append(Point(theta, float(torch.randn((), generator=generator)), grad))
        theta = theta - 0.1 * grad
    return points


def walk(method: Any, points: Sequence[Point], *, finish: bool = True) -> Any:
    path = method.start(points[0].theta)
    for point in points[:-1]:
        path.observe(*point)
    if finish:
        path.finish(*points[-1])
    return path


def assert_close(actual: Tensor, expected: object, *, rtol: float = 1e-6) -> None:
    """Within `rtol` of the expected vector's norm."""
    truth = torch.as_tensor(expected, dtype=torch.float64)
    error = torch.linalg.vector_norm(actual.double() - truth)
    assert error <= rtol * torch.linalg.vector_norm(truth), float(error)
