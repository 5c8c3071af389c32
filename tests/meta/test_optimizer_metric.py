"""Leap in the metric of the inner optimizer: against its definition by G and a S, closed forms."""

from __future__ import annotations

import math
from itertools import pairwise
from typing import NamedTuple

import pytest
import torch
from torch import Tensor

from leap_rl.meta import Leap, LeapPath, Reptile
from tests.meta.paths import VARIANTS, assert_close

P = 29
RATE = 0.05


class Point(NamedTuple):
    theta: Tensor
    loss: float
    grad: Tensor
    scaling: Tensor
    """The diagonal of S of the update that leaves the point."""


def make_points(*, updates: int = 40, seed: int = 0, loss_scale: float = 1.0) -> list[Point]:
    """K + 1 points of a path under a diagonal S that changes; its loss rises and falls."""
    generator = torch.Generator().manual_seed(seed)
    theta = torch.randn(P, generator=generator)
    points = []
    for _ in range(updates + 1):
        grad = torch.randn(P, generator=generator)
        scaling = torch.rand(P, generator=generator) + 0.1
        loss = loss_scale * float(torch.randn((), generator=generator))
        # A loss in another unit has another gradient; RMSProp's S undoes it, and so the step stays.
        points.append(Point(theta, loss, loss_scale * grad, scaling / loss_scale))
        theta = theta - RATE * scaling * grad
    return points


def walk(method: Leap | Reptile, points: list[Point], *, with_grad: bool = True) -> LeapPath:
    path = method.start(points[0].theta)
    for theta, loss, grad, _ in points[:-1]:
        path.observe(theta, loss, grad if with_grad else None)
    path.finish(points[-1].theta, points[-1].loss)
    return path


def by_definition(points: list[Point], method: Leap) -> tuple[list[float], float]:
    """The contribution and the distance, in float64, literally from G = (a S)^-1.

    The derivative of |dgamma|^p by theta_i, the forward point and G held fixed, is the covector
    -p |dgamma|^(p-2) (G dtheta + k df grad_f); G^-1 = a S raises it to a vector. With the
    stabilizer, df is replaced by -|df| there.
    """
    kappa = method.loss_scale**2 if method.loss_in_path else 0.0
    total, distance, weights, way = [0.0] * P, 0.0, [], []
    for here, there in pairwise(points):
        raised = [RATE * s for s in here.scaling.tolist()]
        metric = [1.0 / each for each in raised]
        step = [b - a for a, b in zip(here.theta.tolist(), there.theta.tolist(), strict=True)]
        df = there.loss - here.loss
        squared = sum(g * d * d for g, d in zip(metric, step, strict=True)) + kappa * df**2
        length = math.sqrt(squared)
        pull = -abs(df) if method.stabilizer else df
        for j, slope in enumerate(here.grad.tolist()):
            covector = metric[j] * step[j] + kappa * pull * slope
            total[j] += -method.p * length ** (method.p - 2) * raised[j] * covector
        distance += length**method.p
        weights.append((1.0 + kappa * abs(df)) * length ** (method.p - 2))
        way.append(math.hypot(*step) if method.p == 1 else 1.0)
    if method.task_unit:
        unit = math.fsum(w * d for w, d in zip(weights, way, strict=True)) / math.fsum(way)
        total = [each / unit for each in total]
    return total, distance


@pytest.mark.parametrize(("p", "loss_in_path", "stabilizer"), VARIANTS)
@pytest.mark.parametrize("task_unit", [False, True])
@pytest.mark.parametrize("loss_scale", [1.0, 0.3])
def test_the_contribution_is_its_definition(p, loss_in_path, stabilizer, task_unit, loss_scale):
    method = Leap(
        p=p,
        loss_in_path=loss_in_path,
        stabilizer=stabilizer,
        loss_scale=loss_scale,
        metric="optimizer",
        task_unit=task_unit,
    )
    points = make_points()
    path = walk(method, points)
    contribution, distance = by_definition(points, method)
    assert path.gradient().dtype == torch.float32
    # Steps in float32 of parameters near 1 are known to 1e-6 of themselves, G divides by 5e-3.
    assert_close(path.gradient(), contribution, rtol=1e-5)
    assert path.metrics()["energy" if p == 2 else "length"] == pytest.approx(distance, rel=1e-5)


@pytest.mark.parametrize("p", [1, 2])
def test_a_quadratic_under_a_fixed_diagonal_scaling_in_closed_form(p):
    """f = |theta - m|^2 / 2 along one axis: theta_i - m = r^i e with r = 1 - a s.

    A step is -a s r^i e, the fall of the loss r^2i (1 - r^2) e^2 / 2, the predicted one
    a s r^2i e^2. Both are r^2i times a constant: the length's weights are a r^-i + k b r^i.
    """
    rate, s, e, m, updates, kappa = 0.2, 0.5, 1.5, -0.25, 30, 0.49
    r = 1 - rate * s
    fall, predicted = (1 - r**2) * e**2 / 2, rate * s * e**2
    points = [(m + r**i * e, r ** (2 * i) * e**2 / 2, r**i * e) for i in range(updates + 1)]
    path = Leap(p=p, metric="optimizer", loss_scale=math.sqrt(kappa)).start(
        torch.tensor([points[0][0]])
    )
    for theta, loss, grad in points[:-1]:
        path.observe(torch.tensor([theta]), loss, torch.tensor([grad]))
    path.finish(torch.tensor([points[-1][0]]), points[-1][1])
    step = rate * s * e
    if p == 2:
        expected = 2 * step * (1 - r**updates) / (1 - r)
        expected += 2 * step * kappa * fall * (1 - r ** (3 * updates)) / (1 - r**3)
    else:
        expected = sum(
            (1 + kappa * fall * r ** (2 * i))
            * step
            * r**i
            / math.sqrt(predicted * r ** (2 * i) + kappa * (fall * r ** (2 * i)) ** 2)
            for i in range(updates)
        )
    assert path.gradient().item() == pytest.approx(expected, rel=1e-5)


@pytest.mark.parametrize("p", [1, 2])
@pytest.mark.parametrize("stabilizer", [True, False])
def test_for_gradient_descent_it_is_equation_8(p, stabilizer):
    """With S = I, G is 1/a times the identity: eq. 8 of c^2 = k a, lengths in units of sqrt(a)."""
    generator = torch.Generator().manual_seed(3)
    theta = torch.randn(P, generator=generator)
    kappa = 0.7
    metric = Leap(p=p, stabilizer=stabilizer, loss_scale=math.sqrt(kappa), metric="optimizer")
    printed = Leap(p=p, stabilizer=stabilizer, loss_scale=math.sqrt(kappa * RATE))
    paths = [method.start(theta) for method in (metric, printed)]
    for _ in range(50):
        grad = torch.randn(P, generator=generator)
        loss = float(torch.randn((), generator=generator))
        for path in paths:
            path.observe(theta, loss, grad)
        theta = theta - RATE * grad
    for path in paths:
        path.finish(theta, 0.1)
    ours, eq_8 = paths
    unit = math.sqrt(RATE) if p == 1 else 1.0
    assert_close(unit**-1 * ours.gradient(), eq_8.gradient(), rtol=1e-5)
    name = "energy" if p == 2 else "length"
    scale = RATE if p == 2 else math.sqrt(RATE)
    assert scale * ours.metrics()[name] == pytest.approx(eq_8.metrics()[name], rel=1e-5)


def test_the_energy_without_the_loss_is_twice_reptile():
    points = make_points()
    reptile = walk(Reptile(), points).gradient()
    energy = Leap(p=2, loss_in_path=False, metric="optimizer")
    assert_close(walk(energy, points).gradient(), 2 * reptile)
    small = Leap(p=2, loss_scale=1e-4, metric="optimizer")
    assert_close(walk(small, points).gradient(), 2 * reptile, rtol=1e-6)


@pytest.mark.parametrize("p", [1, 2])
def test_a_unit_of_its_own_makes_a_task_blind_to_its_rewards_scale(p):
    """Where k |df| is far above 1, f -> l f changes no contribution; without the unit it does."""
    own, none = (Leap(p=p, metric="optimizer", task_unit=unit) for unit in (True, False))
    once, tenfold = (make_points(loss_scale=scale) for scale in (1e5, 1e6))
    assert_close(walk(own, tenfold).gradient(), walk(own, once).gradient(), rtol=1e-4)
    if p == 2:
        # Its weights are the loss's own changes.
        changes = [abs(b.loss - a.loss) for a, b in pairwise(once)]
        mean = math.fsum(changes) / len(changes)
        weighted = sum(
            change / mean * (a.theta - b.theta).double()
            for change, (a, b) in zip(changes, pairwise(once), strict=True)
        )
        assert_close(walk(own, once).gradient(), 2 * weighted, rtol=1e-4)
        ratio = walk(none, tenfold).gradient().norm() / walk(none, once).gradient().norm()
        assert ratio == pytest.approx(10.0, rel=1e-2)


def test_a_segment_of_nearly_no_length_does_not_own_the_unit_of_a_length():
    """1 / |dgamma| has no bound; a mean of it over the segments would make the rest count 0."""
    method = Leap(p=1, metric="optimizer", task_unit=True)
    points = make_points()
    standing = points[0]._replace(theta=points[0].theta - 1e-7, loss=points[0].loss + 1e-7)
    behind = [p._replace(theta=p.theta - 1e-7, loss=p.loss + 1e-7) for p in points[1:]]
    with_pause = [points[0], standing, *behind]
    assert_close(walk(method, with_pause).gradient(), walk(method, points).gradient(), rtol=1e-3)


def test_a_spike_shows_in_the_effective_segments():
    calm = walk(Leap(metric="optimizer", loss_in_path=False), make_points())
    assert calm.metrics()["effective_segments"] == pytest.approx(1.0)
    assert calm.metrics()["mean_weight"] == pytest.approx(1.0)
    points = make_points(updates=100)
    points[50] = points[50]._replace(loss=1e6)  # two segments have it at an end
    spiked = walk(Leap(metric="optimizer"), points)
    assert spiked.metrics()["effective_segments"] == pytest.approx(2 / 100, rel=1e-2)


def test_the_energy_needs_no_gradient():
    method = Leap(p=2, metric="optimizer", task_unit=True)
    points = make_points()
    without, full = walk(method, points, with_grad=False), walk(method, points)
    assert torch.equal(without.gradient(), full.gradient())
    assert "energy" in full.metrics()
    assert "energy" not in without.metrics()
    assert without.metrics().items() <= full.metrics().items()


@pytest.mark.parametrize("method", [Leap(p=1, metric="optimizer"), Leap(p=1), Leap(p=2)])
def test_where_the_gradient_is_needed_it_is_asked_for(method):
    path = method.start(torch.zeros(3))
    with pytest.raises(ValueError, match=r"grad: .* at the start of segment 0; call observe"):
        path.observe(torch.zeros(3), 0.0)
    path.observe(torch.zeros(3), 0.0, torch.ones(3))
    path.finish(torch.ones(3), 1.0)  # at the end it is not


def test_a_step_against_the_gradient_has_no_predicted_decrease():
    """Momentum may go uphill; the length of such a segment is that of its loss alone."""
    path = Leap(p=1, metric="optimizer").start(torch.zeros(2))
    path.observe(torch.zeros(2), 1.0, torch.tensor([1.0, 0.0]))
    path.finish(torch.tensor([0.5, 0.0]), 3.0)
    assert path.metrics()["length"] == 2.0
    assert path.gradient().tolist() == [-(1 + 2.0) / 2.0 * 0.5, 0.0]


def test_a_predicted_decrease_that_overflows_float32_is_taken():
    path = Leap(p=1, metric="optimizer", loss_in_path=False).start(torch.zeros(2))
    path.observe(torch.zeros(2), 0.0, torch.tensor([1e30, 1e30]))
    path.finish(torch.tensor([-1e10, -1e10]), 0.0)
    assert path.metrics()["length"] == pytest.approx(math.sqrt(2e40))


@pytest.mark.parametrize("optimizer", ["adam", "momentum", "clipped"])
def test_it_watches_any_optimizer_of_torch(optimizer):
    """In a loop of one's own: the contribution is the weighted sum of the steps it took."""
    theta = torch.nn.Parameter(torch.linspace(-1, 1, P))
    makers = {
        "adam": lambda: torch.optim.Adam([theta], lr=0.01),
        "momentum": lambda: torch.optim.SGD([theta], lr=0.01, momentum=0.9),
        "clipped": lambda: torch.optim.SGD([theta], lr=0.01),
    }
    steps = makers[optimizer]()
    path = Leap(p=2, metric="optimizer").start(theta)
    trace: list[tuple[Tensor, float]] = []
    for _ in range(30):
        loss = (theta - 0.5).square().sum()
        steps.zero_grad()
        loss.backward()
        if optimizer == "clipped":
            torch.nn.utils.clip_grad_norm_([theta], 0.1)
        trace.append((theta.detach().clone(), loss.item()))
        path.observe(theta, loss)
        steps.step()
    end = (theta - 0.5).square().sum()
    trace.append((theta.detach().clone(), end.item()))
    path.finish(theta, end)
    expected = sum(
        2 * (1 + abs(f_b - f_a)) * (a - b).double() for (a, f_a), (b, f_b) in pairwise(trace)
    )
    assert_close(path.gradient(), expected, rtol=1e-5)


def test_fields_that_cannot_be_meant_together_are_refused():
    with pytest.raises(ValueError, match="metric = 'riemann'"):
        Leap(metric="riemann")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="task_unit = True"):
        Leap(task_unit=True)
