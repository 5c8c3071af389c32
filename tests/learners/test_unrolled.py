"""The gradient through gradient descent: closed forms, finite differences, the network's own."""

from __future__ import annotations

import torch
from torch import Tensor

from leap_rl.learners.classifier.classifier import Batch, ClassifierLearner
from leap_rl.learners.classifier.unrolled import gradient_through_descent


def generator(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def quartic(theta: Tensor, batch: Tensor) -> Tensor:
    """A loss whose Hessian changes from point to point and mixes coordinates."""
    return ((theta - batch) ** 4).sum() / 4 + (theta.sum() * batch.sum()) ** 2 / 10


def end_loss(start: Tensor, batches: list[Tensor], last: Tensor, lr: float) -> Tensor:
    """f(θᴷ), by a loop with derivatives written out."""
    theta = start.clone()
    for batch in batches:
        gradient = (theta - batch) ** 3 + theta.sum() * batch.sum() ** 2 / 5
        theta = theta - lr * gradient
    return quartic(theta, last)


def test_it_is_the_derivative_by_finite_differences() -> None:
    start, last = torch.randn(2, 6, generator=generator(0), dtype=torch.float64) * 0.5
    batches = list(torch.randn(5, 6, generator=generator(1), dtype=torch.float64) * 0.5)
    gradient, value = gradient_through_descent(
        quartic, start, batches=batches, last_batch=last, lr=0.1
    )
    torch.testing.assert_close(value, end_loss(start, batches, last, 0.1))
    step = 1e-6
    for i in range(6):
        nudge = torch.zeros(6, dtype=torch.float64)
        nudge[i] = step
        ahead = end_loss(start + nudge, batches, last, 0.1)
        behind = end_loss(start - nudge, batches, last, 0.1)
        torch.testing.assert_close(gradient[i], (ahead - behind) / (2 * step), rtol=1e-6, atol=1e-8)


def test_on_a_bowl_it_has_its_closed_form() -> None:
    """f = ½ Σ a(θ − c)²: every Jacobian is 1 − αa, so d f(θᴷ)/dθ⁰ = (1 − αa)ᴷ a (θᴷ − c)."""
    a = torch.rand(4, generator=generator(2), dtype=torch.float64) + 0.5

    def bowl(theta: Tensor, lowest: Tensor) -> Tensor:
        return 0.5 * (a * (theta - lowest) ** 2).sum()

    start, lowest = torch.randn(2, 4, generator=generator(3), dtype=torch.float64)
    gradient, _ = gradient_through_descent(
        bowl, start, batches=[lowest] * 5, last_batch=lowest, lr=0.3
    )
    contraction = (1 - 0.3 * a) ** 5
    torch.testing.assert_close(gradient, contraction * a * contraction * (start - lowest))


def test_without_updates_it_is_the_plain_gradient() -> None:
    start, last = torch.randn(2, 6, generator=generator(0), dtype=torch.float64)
    gradient, _ = gradient_through_descent(quartic, start, batches=[], last_batch=last, lr=0.1)
    torch.testing.assert_close(gradient, torch.func.grad(quartic)(start, last))


def test_of_the_network_it_is_the_derivative_along_a_direction() -> None:
    """In float64, through five updates with convolutions, normalizations and pooling."""
    learner = ClassifierLearner(
        classes=20, share="all_but_last", lr=0.1, head_generator=generator(0)
    )
    learner.network.double()
    size = learner.flat.layout.size
    start = 0.1 * torch.randn(size, generator=generator(1), dtype=torch.float64)
    batches = [
        Batch(
            torch.rand(6, 1, 28, 28, generator=generator(seed), dtype=torch.float64),
            torch.randint(20, (6,), generator=generator(seed)),
        )
        for seed in range(6)
    ]

    def outcome(theta: Tensor) -> tuple[Tensor, Tensor]:
        return gradient_through_descent(
            learner.loss_at, theta, batches=batches[:5], last_batch=batches[5], lr=0.01
        )

    gradient, _ = outcome(start)
    direction = torch.randn(size, generator=generator(2), dtype=torch.float64)
    direction /= direction.norm()
    step = 1e-6
    difference = (outcome(start + step * direction)[1] - outcome(start - step * direction)[1]) / (
        2 * step
    )
    torch.testing.assert_close(gradient @ direction, difference, rtol=1e-4, atol=1e-9)
    first_order = torch.func.grad(learner.loss_at)(start, batches[5])
    assert abs(float(first_order @ direction - difference)) > 1e-3 * abs(float(difference))
