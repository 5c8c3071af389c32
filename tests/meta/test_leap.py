"""Leap's contribution against eq. 8 written out, the surrogate objective of eq. 5, closed forms."""

from __future__ import annotations

import math
from itertools import pairwise

import pytest
import torch
from torch import Tensor

from leap_rl.meta import Leap, NonFiniteError
from tests.meta.paths import VARIANTS, P, Point, assert_close, make_points, walk

METHODS = [
    Leap(p=p, loss_in_path=loss_in_path, stabilizer=stabilizer, metric=metric, task_unit=task_unit)
    for p, loss_in_path, stabilizer in VARIANTS
    for metric, task_unit in (("euclidean", False), ("optimizer", False), ("optimizer", True))
]


def literal_eq_8(points: list[Point], method: Leap, *, previous_losses=None) -> list[float]:
    """Eq. 8 with J = I in Python's float64, one segment and one parameter at a time."""
    c = method.loss_scale if method.loss_in_path else 0.0
    total = [0.0] * points[0].theta.numel()
    for i, (here, there) in enumerate(pairwise(points)):
        end_loss = there.loss if previous_losses is None else previous_losses[i]
        delta_f = end_loss - here.loss
        delta_theta = [
            b - a for a, b in zip(here.theta.tolist(), there.theta.tolist(), strict=True)
        ]
        norm = math.sqrt(sum(d * d for d in delta_theta) + (c * delta_f) ** 2)
        if method.stabilizer:
            delta_f = -abs(delta_f)
        for j, g in enumerate(here.grad.tolist()):
            term = c * c * delta_f * g + delta_theta[j]
            total[j] += -method.p * term * norm ** (method.p - 2)
    return total


@pytest.mark.parametrize(("p", "loss_in_path", "stabilizer"), VARIANTS)
@pytest.mark.parametrize("loss_scale", [1.0, 0.3])
def test_gradient_is_equation_8(p, loss_in_path, stabilizer, loss_scale):
    method = Leap(p=p, loss_in_path=loss_in_path, stabilizer=stabilizer, loss_scale=loss_scale)
    points = make_points(updates=50)
    losses = [point.loss for point in points]
    assert any(b > a for a, b in pairwise(losses))
    assert any(b < a for a, b in pairwise(losses))

    gradient = walk(method, points).gradient()

    assert gradient.dtype == torch.float32
    assert gradient.shape == (P,)
    assert_close(gradient, literal_eq_8(points, method))


@pytest.mark.parametrize(("p", "loss_in_path", "stabilizer"), VARIANTS)
def test_gradient_is_that_of_the_surrogate_objective(p, loss_in_path, stabilizer):
    """Autograd through eq. 5 plus the stabilizer mu, with theta_i = theta_0 + a constant (J = I).

    The paper adds the gradient of mu "re-scaled if necessary": exact as it stands for the energy;
    for the length by half the segment's inverse norm, as the length's gradient is to the energy's.
    """
    generator = torch.Generator().manual_seed(1)
    curvature = torch.randn(P, P, generator=generator, dtype=torch.float64)
    c = 0.7

    def f(theta: Tensor, i: int) -> Tensor:
        return 0.1 * theta @ curvature @ theta + torch.sin(theta + i).sum()  # batch i

    points: list[Point] = []
    theta = torch.randn(P, generator=generator)
    for i in range(21):
        leaf = theta.double().requires_grad_()
        loss = f(leaf, i)
        (grad,) = torch.autograd.grad(loss, leaf)
        points.append(Point(theta, loss.item(), grad.float()))
        theta = theta - (0.02 * grad).float()
    theta0 = points[0].theta.double().requires_grad_()
    objective = torch.zeros((), dtype=torch.float64)
    rises = 0
    for i, (here, there) in enumerate(pairwise(points)):
        theta_i = theta0 + (here.theta.double() - points[0].theta.double())
        f_i, frozen_theta, frozen_f = f(theta_i, i), there.theta.double(), there.loss
        squared = (frozen_theta - theta_i).square().sum()
        if loss_in_path:
            squared = squared + c**2 * (frozen_f - f_i) ** 2
        objective = objective + squared ** (p / 2)
        if loss_in_path and stabilizer and frozen_f > f_i:
            rises += 1
            mu = -2 * c**2 * (frozen_f - f_i) ** 2
            objective = objective + (mu if p == 2 else mu / (2 * squared.detach().sqrt()))
    assert rises > 0 or not (loss_in_path and stabilizer)
    (expected,) = torch.autograd.grad(objective, theta0)

    method = Leap(p=p, loss_in_path=loss_in_path, stabilizer=stabilizer, loss_scale=c)
    assert_close(walk(method, points).gradient(), expected)


@pytest.mark.parametrize("p", [1, 2])
@pytest.mark.parametrize("loss_in_path", [True, False])
def test_gradient_descent_on_a_quadratic_in_closed_form(p, loss_in_path):
    """f = |theta - m|^2 / 2 with rate a: theta_i - m = r^i e with r = 1 - a, so all pulls lie on e.

    Energy: sum of r^i and r^3i are geometric. Length without the loss: each segment adds e / |e|.
    """
    rate, updates = 0.1, 40
    r = 1 - rate
    generator = torch.Generator().manual_seed(2)
    optimum = torch.randn(P, generator=generator, dtype=torch.float64)
    e = torch.randn(P, generator=generator, dtype=torch.float64)
    n2 = float(e @ e)
    points = []
    for i in range(updates + 1):
        theta = optimum + r**i * e
        points.append(Point(theta.float(), r ** (2 * i) * n2 / 2, (r**i * e).float()))
    path = walk(Leap(p=p, loss_in_path=loss_in_path), points)

    w = float(loss_in_path)
    fall = (1 - r**2) / 2 * n2  # -df_i = fall r^2i
    if p == 2:
        loss_part = w * fall * (1 - r ** (3 * updates)) / (1 - r**3)
        expected = 2 * (loss_part + (1 - r**updates)) * e
        distance = rate**2 * n2 * (1 - r ** (2 * updates)) / (1 - r**2)
        distance += w * fall**2 * (1 - r ** (4 * updates)) / (1 - r**4)
        pull = loss_part * math.sqrt(n2)
    elif not loss_in_path:
        expected = updates * e / math.sqrt(n2)
        distance = (1 - r**updates) * math.sqrt(n2)
        pull = 0.0
    else:
        lengths = [r**i * math.sqrt(rate**2 * n2 + (fall * r**i) ** 2) for i in range(updates)]
        loss_sum = sum(fall * r ** (3 * i) / lengths[i] for i in range(updates))
        expected = (loss_sum + sum(rate * r**i / lengths[i] for i in range(updates))) * e
        distance = sum(lengths)
        pull = loss_sum * math.sqrt(n2)

    assert_close(path.gradient(), expected, rtol=1e-5)  # theta in float32: steps of 1e-3 near 1
    metrics = path.metrics()
    distance_name = "energy" if p == 2 else "length"
    assert set(metrics) == {distance_name, "displacement", "loss_pull", "first_step"}
    assert metrics["first_step"] == pytest.approx(
        rate * math.sqrt(n2) / float((optimum + e).norm()), rel=1e-4
    )
    assert metrics["energy" if p == 2 else "length"] == pytest.approx(distance, rel=1e-5)
    assert metrics["displacement"] == pytest.approx((1 - r**updates) * math.sqrt(n2), rel=1e-6)
    assert metrics["loss_pull"] == pytest.approx(pull, rel=1e-5)


@pytest.mark.parametrize("p", [1, 2])
def test_k_updates_are_k_segments(p):
    """The last update counts: by hand, two updates in one dimension, without the loss."""
    path = Leap(p=p, loss_in_path=False).start(torch.tensor([1.0]))
    counts = []
    for theta in (1.0, 0.75):
        path.observe(torch.tensor([theta]), 0.0, torch.tensor([0.0]))
        counts.append(path.segments)
    assert path.gradient().item() == (0.5 if p == 2 else 1.0)  # one segment, of -0.25
    path.finish(torch.tensor([0.25]), 0.0)

    assert [*counts, path.segments] == [0, 1, 2]
    assert path.gradient().item() == (1.5 if p == 2 else 2.0)


def test_one_segment_by_hand():
    """dtheta = (3, 0), c df = 0.5 * 8: |dgamma| = 5; the loss term is 0.25 * -8 * (1, 2)."""
    for p, expected in ((2, (-2.0, 8.0)), (1, (-0.2, 0.8))):
        path = Leap(p=p, loss_scale=0.5).start(torch.zeros(2))
        path.observe(torch.zeros(2), 1.0, torch.tensor([1.0, 2.0]))
        path.finish(torch.tensor([3.0, 0.0]), 9.0)
        assert path.gradient().tolist() == pytest.approx(expected)
        assert path.metrics()["energy" if p == 2 else "length"] == (25.0 if p == 2 else 5.0)


@pytest.mark.parametrize("method", METHODS)
def test_a_segment_of_length_zero_adds_nothing(method):
    points = make_points(updates=4)
    stuttering = [points[0], points[1], points[1], *points[2:], points[-1]]

    path = walk(method, stuttering)

    assert path.segments == 6
    assert torch.equal(path.gradient(), walk(method, points).gradient())
    assert path.metrics() == walk(method, points).metrics()


@pytest.mark.parametrize(("p", "loss_in_path", "stabilizer"), VARIANTS)
def test_loss_difference_on_the_same_batch(p, loss_in_path, stabilizer):
    method = Leap(p=p, loss_in_path=loss_in_path, stabilizer=stabilizer)
    points = make_points(updates=10)
    previous = [math.cos(3 * i) for i in range(10)]
    path = method.start(points[0].theta)
    path.observe(*points[0])
    for i in range(1, 10):
        path.observe(*points[i], previous_batch_loss=torch.tensor(previous[i - 1]).double())
    path.finish(points[10].theta, points[10].loss, previous_batch_loss=previous[9])

    assert_close(path.gradient(), literal_eq_8(points, method, previous_losses=previous))


@pytest.mark.parametrize("p", [1, 2])
def test_bits_do_not_depend_on_how_often_they_are_read(p):
    points = make_points(updates=100)
    often = Leap(p=p).start(points[0].theta)
    for point in points[:-1]:
        often.observe(*point)
        often.gradient().zero_()  # what is read is the reader's own
        often.metrics()
        often.state_dict()["grad"].zero_()
    often.finish(points[-1].theta, points[-1].loss)
    never = walk(Leap(p=p), points)

    assert torch.equal(often.gradient(), never.gradient())
    assert often.metrics() == never.metrics()


def test_a_state_of_another_path_is_refused():
    points = make_points(updates=3)
    path = walk(Leap(p=1), points, finish=False)
    before = path.gradient()
    with pytest.raises(ValueError, match="delta_sum"):
        path.load_state_dict(walk(Leap(p=2), points).state_dict())
    with pytest.raises(ValueError, match=r"'theta'|'grad'"):
        path.load_state_dict(walk(Leap(p=1), make_points(updates=3, size=5)).state_dict())
    with pytest.raises(ValueError, match="another theta0"):
        path.load_state_dict(walk(Leap(p=1), make_points(updates=3, seed=1)).state_dict())
    assert torch.equal(path.gradient(), before)


def test_infinities_of_both_signs_do_not_cancel():
    path = Leap().start(torch.zeros(4))
    with pytest.raises(NonFiniteError, match="grad"):
        path.observe(torch.zeros(4), 0.0, torch.tensor([math.inf, -math.inf, 0, 0]))


def test_finite_values_that_overflow_on_the_way_are_taken():
    """A sum of gradients or a square of a step may overflow float32 where no value does."""
    path = Leap(p=1, loss_in_path=False).start(torch.zeros(4))
    path.observe(torch.zeros(4), 0.0, torch.full((4,), 3e38))
    path.finish(torch.full((4,), 1e30), 0.0)
    assert path.metrics()["length"] == pytest.approx(2e30)
    assert path.gradient().tolist() == pytest.approx([-0.5] * 4)


@pytest.mark.parametrize("method", METHODS)
def test_what_is_borrowed_and_known_gives_the_same_sum(method):
    """As an agent does it that swaps two buffers and knows how long its steps are."""
    points = make_points(updates=40)
    path = method.start(points[0].theta, borrow=True)
    buffers = [Point(torch.empty(P), 0.0, torch.empty(P)) for _ in range(2)]
    length = None
    for index, point in enumerate(points):
        theta, _, grad = buffers[index % 2]
        theta.copy_(point.theta)  # what was shown before the last point may be overwritten
        grad.copy_(point.grad)
        if index:
            length = (point.theta - points[index - 1].theta).double().norm().item()
        if index < len(points) - 1:
            path.observe(theta, point.loss, grad, step_length=length)
        else:
            path.finish(theta, point.loss, step_length=length)
    expected = walk(method, points)
    torch.testing.assert_close(path.gradient(), expected.gradient(), rtol=1e-5, atol=1e-6)
    assert path.metrics() == pytest.approx(expected.metrics(), rel=1e-6)


def test_borrowing_copies_nothing():
    points = make_points(updates=2)
    path = Leap().start(points[0].theta, borrow=True)
    path.observe(*points[0])
    assert path.state_dict()["theta"].data_ptr() != points[0].theta.data_ptr(), "a state is a copy"
    assert path._theta.data_ptr() == points[0].theta.data_ptr()
    assert path._grad.data_ptr() == points[0].grad.data_ptr()


@pytest.mark.parametrize("bad", [math.nan, math.inf])
@pytest.mark.parametrize("where", ["theta", "grad"])
def test_a_known_length_that_is_not_finite_is_refused(bad, where):
    points = make_points(updates=3)
    path = Leap().start(points[0].theta, borrow=True)
    path.observe(*points[0], step_length=None)
    path.observe(*points[1], step_length=0.1)
    before = path.gradient()
    theta = torch.full((P,), bad)
    with pytest.raises(NonFiniteError, match="theta at the start of segment 2"):
        path.observe(theta, 0.0, points[2].grad, step_length=bad)
    assert torch.equal(path.gradient(), before)
    if where == "grad":  # found by the step that it leads to, before it enters the sum
        path = Leap().start(points[0].theta, borrow=True)
        path.observe(*points[0])
        path.observe(points[1].theta, 0.0, torch.full((P,), bad), step_length=0.1)
        with pytest.raises(NonFiniteError):
            path.observe(theta, 0.0, points[2].grad, step_length=math.nan)
        assert torch.isfinite(path.gradient()).all()


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"p": 3}, "p = 3"),
        ({"loss_scale": 0.0}, "loss_scale = 0.0"),
        ({"loss_scale": math.inf}, "loss_scale = inf"),
        ({"loss_scale": math.nan}, "loss_scale = nan"),
    ],
)
def test_fields_out_of_range_are_refused(fields, message):
    with pytest.raises(ValueError, match=message):
        Leap(**fields)
