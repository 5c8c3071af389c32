"""Reptile, finetuning and both MAMLs: what they contribute, and what all paths must do."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from leap_rl.meta import FOMAML, MAML, Leap, NoMethod, NonFiniteError, Pretraining, Reptile
from leap_rl.meta.gradient_path import Method
from tests.meta.paths import P, make_points, walk

RELATIVES: list[Method] = [Reptile(), FOMAML(), MAML(), Pretraining()]
LEAPS: list[Method] = [
    *(Leap(p=p, loss_in_path=loss) for p in (1, 2) for loss in (True, False)),
    *(Leap(p=p, metric="optimizer", task_unit=p == 1) for p in (1, 2)),
]
every_method = pytest.mark.parametrize("method", [*RELATIVES, *LEAPS], ids=str)


def bits(vector: Tensor) -> list[int]:
    """As integers: minus 0 is not 0."""
    assert vector.dtype == torch.float32
    return vector.view(torch.int32).tolist()


@pytest.mark.parametrize("method", [Reptile(), Pretraining()], ids=lambda method: method.name)
def test_leaps_energy_without_loss_and_stabilizer_is_reptile_times_p(method: Method) -> None:
    points = make_points(50)
    leap = Leap(p=2, loss_in_path=False, stabilizer=False).start(points[0][0])
    path = method.start(points[0][0])
    for one in (leap, path):
        one.observe(*points[0])
    for point in points[1:-1]:
        for one in (leap, path):
            one.observe(*point)
        assert bits(2 * path.gradient()) == bits(leap.gradient())
    for one in (leap, path):
        one.finish(*points[-1])
    assert bits(2 * path.gradient()) == bits(leap.gradient())
    assert path.gradient().norm() > 1
    assert path.segments == leap.segments == 50


def test_reptile_is_where_the_path_began_less_where_it_ended() -> None:
    path = Reptile().start(torch.tensor([1.0, 2.0]))
    path.observe(torch.tensor([1.0, 2.0]), 0.0, torch.ones(2))
    assert path.gradient().tolist() == [0.0, 0.0]
    path.observe(torch.tensor([-7.0, 5.0]), 0.0, torch.ones(2))  # where it went by says nothing
    path.finish(torch.tensor([0.25, 2.0]), 0.0)
    assert path.gradient().tolist() == [0.75, 0.0]
    assert path.metrics()["displacement"] == 0.75


@pytest.mark.parametrize("method", [FOMAML(), MAML()], ids=lambda method: method.name)
def test_mamls_contribution_is_the_gradient_at_the_end(method: Method) -> None:
    points = make_points(5)
    path = method.start(points[0][0])
    assert torch.equal(path.gradient(), torch.zeros(P))
    for theta, loss, grad in points[:-1]:
        path.observe(theta, loss, grad)
        assert bits(path.gradient()) == bits(grad)  # as if the path ended here
    with pytest.raises(
        ValueError, match=r"^grad: MAML, of either order, needs it at the end of segment 4"
    ):
        path.finish(*points[-1][:2])
    assert path.segments == 4
    path.finish(*points[-1])
    assert bits(path.gradient()) == bits(points[-1][2])
    assert path.segments == 5
    moved = (points[-1][0] - points[0][0]).double().norm().item()
    assert path.metrics()["displacement"] == pytest.approx(moved, rel=1e-6)


@every_method
@pytest.mark.parametrize("borrow", [False, True])
def test_a_restored_path_comes_to_the_same_bits(method: Method, borrow: bool) -> None:
    points = make_points(80)  # sums are kept in blocks of 32
    expected = walk(method, points)
    for cut in (0, 1, 2, 45, 80):
        first = method.start(points[0][0], borrow=borrow)
        for point in points[:cut]:
            first.observe(*point)
        state = first.state_dict()
        path = method.start(points[0][0], borrow=borrow)
        path.load_state_dict(state)
        for tensor in state.values():
            tensor.zero_()  # what is loaded is copied
        assert path.segments == first.segments
        assert bits(path.gradient()) == bits(first.gradient())
        assert path.metrics() == first.metrics()
        for point in points[cut:-1]:
            path.observe(*point)
        path.finish(*points[-1])
        assert bits(path.gradient()) == bits(expected.gradient())
        assert path.metrics() == expected.metrics()
    finished = method.start(points[0][0])
    finished.load_state_dict(expected.state_dict())
    with pytest.raises(RuntimeError, match="finished"):
        finished.observe(*points[-1])


@every_method
def test_a_state_of_another_path_is_refused(method: Method) -> None:
    points = make_points(2)
    path = method.start(points[0][0])
    with pytest.raises(ValueError, match="another theta0"):
        path.load_state_dict(method.start(points[1][0]).state_dict())
    with pytest.raises(ValueError, match="lacks"):
        path.load_state_dict(NoMethod().start(points[0][0]).state_dict())


@every_method
def test_what_is_kept_is_copied(method: Method) -> None:
    points = make_points(6)
    path = method.start(points[0][0])
    theta, grad = torch.empty(P), torch.empty(P)
    for index, point in enumerate(points):
        theta.copy_(point[0])
        grad.copy_(point[2])
        show = path.observe if index < len(points) - 1 else path.finish
        show(theta, point[1], grad)
        theta.fill_(7.0)
        grad.fill_(7.0)
    path.gradient().zero_()  # what is read is the reader's own
    assert bits(path.gradient()) == bits(walk(method, points).gradient())


@pytest.mark.parametrize("method", RELATIVES, ids=str)
def test_what_is_borrowed_gives_the_same_bits(method: Method) -> None:
    """As an agent does it that swaps two buffers and knows how long its steps are."""
    points = make_points(7)
    path = method.start(points[0][0], borrow=True)
    buffers = [(torch.empty(P), torch.empty(P)) for _ in range(2)]
    for index, point in enumerate(points):
        theta, grad = buffers[index % 2]
        theta.copy_(point[0])
        grad.copy_(point[2])
        length = (point[0] - points[index - 1][0]).norm().item() if index else None
        show = path.observe if index < len(points) - 1 else path.finish
        show(theta, point[1], grad, step_length=length)
    assert bits(path.gradient()) == bits(walk(method, points).gradient())
    kept = path.state_dict()["theta"]
    theta.fill_(7.0)
    assert torch.equal(kept, points[-1][0]), "a state is a copy"
    assert path.gradient().data_ptr() != grad.data_ptr(), "and so is a gradient"


@every_method
@pytest.mark.parametrize("bad", [math.nan, math.inf])
@pytest.mark.parametrize("known", [False, True], ids=["", "length known"])
def test_what_is_not_finite_is_refused_and_changes_nothing(
    method: Method, bad: float, known: bool
) -> None:
    points = make_points(3)
    path = method.start(points[0][0])
    path.observe(*points[0])
    path.observe(*points[1])
    before, state = path.gradient(), path.state_dict()
    theta, loss, grad = points[2]
    broken = theta.clone()
    broken[3] = bad
    with pytest.raises(NonFiniteError, match="theta at the start of segment 2 is not finite"):
        path.observe(broken, loss, grad, step_length=math.nan if known else None)
    with pytest.raises(NonFiniteError, match="loss at the start of segment 2"):
        path.observe(theta, bad, grad)
    broken_grad = grad.clone()
    broken_grad[5] = bad
    with pytest.raises(NonFiniteError, match="grad at the start of segment 2"):
        path.observe(theta, loss, broken_grad)
    with pytest.raises(NonFiniteError, match="grad at the end of segment 1"):
        path.finish(theta, loss, broken_grad, step_length=0.1)
    for call, where in ((path.observe, "the start of segment 2"), (path.finish, "the end of seg")):
        with pytest.raises(NonFiniteError, match=f"previous_batch_loss at {where}"):
            call(theta, loss, grad, previous_batch_loss=bad)
    assert torch.equal(path.gradient(), before)
    assert path.segments == 1
    assert all(torch.equal(value, state[name]) for name, value in path.state_dict().items())
    path.observe(*points[2])  # the path takes the point once it is whole
    path.finish(*points[3])
    assert torch.equal(path.gradient(), walk(method, points).gradient())


@every_method
def test_a_step_too_long_for_float32_is_taken(method: Method) -> None:
    """The square of its length overflows; no parameter does."""
    path = method.start(torch.zeros(4))
    path.observe(torch.zeros(4), 0.0, torch.ones(4))
    path.finish(torch.full((4,), 1e30), 0.0, torch.ones(4), step_length=math.inf)
    assert path.metrics()["displacement"] == pytest.approx(2e30)


@every_method
def test_wrong_shapes_types_and_orders_are_refused(method: Method) -> None:
    zeros = torch.zeros(4)
    for bad in (torch.zeros(5), torch.zeros(4, dtype=torch.float64), torch.zeros(2, 2)):
        with pytest.raises(ValueError, match="theta: must be"):
            method.start(zeros).observe(bad, 0.0, zeros)
        with pytest.raises(ValueError, match="grad: must be"):
            method.start(zeros).observe(zeros, 0.0, bad)
    for bad in (torch.zeros(4, dtype=torch.float64), torch.zeros(2, 2), torch.zeros(0)):
        with pytest.raises(ValueError, match="theta0"):
            method.start(bad)
    nan = torch.full((4,), math.nan)
    with pytest.raises(NonFiniteError, match="theta0"):
        method.start(nan)
    with pytest.raises(NonFiniteError, match="theta at the start of segment 0"):
        method.start(zeros).observe(nan, 0.0, zeros)
    with pytest.raises(ValueError, match="must be of theta0"):
        method.start(zeros).observe(torch.ones(4), 0.0, zeros)
    with pytest.raises(ValueError, match="previous_batch_loss: the first observation"):
        method.start(zeros).observe(zeros, 0.0, zeros, previous_batch_loss=1.0)
    path = method.start(zeros)
    with pytest.raises(RuntimeError, match="before any observe"):
        path.finish(zeros, 0.0, zeros)
    path.observe(zeros, 0.0, zeros)
    path.finish(zeros, 0.0, zeros)
    for call in (path.observe, path.finish):
        with pytest.raises(RuntimeError, match="finished"):
            call(zeros, 0.0, zeros)


@every_method
def test_no_autograd_graph_is_kept(method: Method) -> None:
    theta = torch.nn.Parameter(torch.ones(3))
    for borrow in (False, True):
        path = method.start(theta, borrow=borrow)
        loss = (theta**2).sum()
        (grad,) = torch.autograd.grad(loss, theta, create_graph=True)
        path.observe(theta, loss, grad)
        assert not path.gradient().requires_grad
        assert not any(value.requires_grad for value in path.state_dict().values())
