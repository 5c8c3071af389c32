"""Sums over as many segments as a task of 5 million agent steps has, against float64."""

from __future__ import annotations

from itertools import product

import pytest
import torch

from leap_rl.meta import Leap
from leap_rl.meta.vectors import norm, pairwise_cosines

SEGMENTS = 31_250
P = 200


def check(*, p, steady: bool, first_times: float) -> None:
    generator = torch.Generator().manual_seed(3)
    base = torch.randn(P, generator=generator) * 1e-2
    theta0 = torch.randn(P, generator=generator)
    noise = torch.randn(SEGMENTS, P, generator=generator) * 1e-2
    grads = base.repeat(SEGMENTS, 1) if steady else noise
    falls = torch.full((SEGMENTS,), 0.0371, dtype=torch.float64)
    if p == 2:
        falls[:3] *= first_times
    else:  # the weight 1 / |dgamma| takes df out again: make the gradients large
        grads[:3] *= first_times
    losses = torch.cat([torch.zeros(1, dtype=torch.float64), -falls.cumsum(0)])
    thetas = theta0 - 1e-4 * torch.arange(SEGMENTS + 1).unsqueeze(1) * base

    path = Leap(p=p).start(thetas[0])
    for theta, loss, grad in zip(thetas, losses.tolist(), grads, strict=False):
        path.observe(theta, loss, grad)
    path.finish(thetas[-1], losses[-1])

    delta_theta, delta_f = thetas.double().diff(dim=0), losses.diff()
    terms = -delta_f.abs().unsqueeze(1) * grads.double() + delta_theta
    if p == 1:
        terms /= torch.sqrt(delta_theta.square().sum(1) + delta_f.square()).unsqueeze(1)
    expected = -p * terms.sum(0)
    error = torch.linalg.vector_norm(path.gradient().double() - expected)
    assert error < 1e-6 * torch.linalg.vector_norm(expected)


@pytest.mark.parametrize(
    ("p", "steady", "first_times"),
    [
        # The hardest stream: every rounding error points the same way, behind large first terms.
        (2, True, 1e4),
        *(
            pytest.param(*case, marks=pytest.mark.slow)
            for case in [(1, True, 1e4), *product((1, 2), (True, False), (1.0,)), (2, False, 1e4)]
        ),
    ],
)
def test_error_over_31250_segments_is_below_1e_6_of_the_norm(p, steady, first_times):
    check(p=p, steady=steady, first_times=first_times)


@pytest.mark.parametrize("size", [1, 255, 256, 675_120])
@pytest.mark.parametrize("kind", ["equal", "normal", "heavy-tailed"])
def test_norm_is_within_1e_6(size, kind):
    generator = torch.Generator().manual_seed(4)
    normal = torch.randn(size, generator=generator)
    vector = {
        "equal": torch.full((size,), 0.1),
        "normal": normal,
        "heavy-tailed": normal * torch.exp(2 * torch.randn(size, generator=generator)),
    }[kind]
    exact = torch.linalg.vector_norm(vector.double()).item()
    assert norm(vector) == pytest.approx(exact, rel=1e-6)


def test_cosines_are_those_in_float64_across_blocks_and_nan_for_a_zero() -> None:
    generator = torch.Generator().manual_seed(4)
    vectors = [torch.randn(150_001, generator=generator) + 0.5 * k for k in range(3)]
    vectors.append(torch.zeros(150_001))
    found = pairwise_cosines(vectors)
    exact = torch.stack(vectors[:3]).double()
    exact /= exact.norm(dim=1, keepdim=True)
    torch.testing.assert_close(found[:3, :3], exact @ exact.T, rtol=1e-9, atol=1e-9)
    assert found[3].isnan().all()
    assert found[:, 3].isnan().all()
