"""A path that watches an optimizer is the path that is observed by hand."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn.utils import clip_grad_norm_, parameters_to_vector

from leap_rl.meta import FOMAML, GradientPath, Leap, Method, NonFiniteError, Reptile
from tests.meta.paths import Point, assert_close
from tests.meta.test_leap import literal_eq_8

OPTIMIZERS: dict[str, Callable[..., torch.optim.Optimizer]] = {
    "sgd": lambda tensors: torch.optim.SGD(tensors, lr=0.05, momentum=0.9),
    "rmsprop": lambda tensors: torch.optim.RMSprop(tensors, lr=0.01),
    "adam": lambda tensors: torch.optim.Adam(tensors, lr=0.01),
}
METHODS = [
    Leap(p=2),
    Leap(p=1, loss_scale=0.3),
    Leap(p=2, metric="optimizer", task_unit=True),
    Leap(p=1, metric="optimizer"),
    Leap(p=1, loss_in_path=False),
    Reptile(),
    FOMAML(),
]
UPDATES = 40


class Loop:
    """An encoder with a head, some of whose parameters have no gradient, and noisy batches."""

    def __init__(self, make: Callable[..., torch.optim.Optimizer], *, clip: float = math.inf):
        torch.manual_seed(3)
        self.encoder = nn.Sequential(nn.Linear(5, 7), nn.Tanh(), nn.Linear(7, 4))
        self.unused = nn.Parameter(torch.ones(2, 3))
        self.head = nn.Linear(4, 1)
        self.shared = [*self.encoder.parameters(), self.unused]
        self.optimizer = make([*self.shared, *self.head.parameters()])
        self.clip = clip
        self.loss = torch.zeros(())

    def theta(self) -> Tensor:
        return parameters_to_vector(self.shared).detach().clone()

    def grad(self) -> Tensor:
        grads = (torch.zeros_like(p) if p.grad is None else p.grad for p in self.shared)
        return torch.cat([grad.ravel() for grad in grads])

    def batch(self) -> None:
        x = torch.randn(16, 5)
        self.optimizer.zero_grad()
        self.loss = (self.head(self.encoder(x)) - x.prod(1, keepdim=True)).square().mean()
        self.loss.backward()
        clip_grad_norm_(self.shared, self.clip)

    def updates(self) -> Iterator[None]:
        """Each time: stop between a gradient and its step."""
        for _ in range(UPDATES):
            self.batch()
            yield
            self.optimizer.step()

    def points(self) -> list[Point]:
        found = [Point(self.theta(), self.loss.item(), self.grad()) for _ in self.updates()]
        self.batch()
        return [*found, Point(self.theta(), self.loss.item(), self.grad())]

    def watched(self, method: Method, *, with_loss: bool = True) -> GradientPath:
        path = method.start(self.theta())
        watch = path.watch(self.optimizer, self.shared, (lambda: self.loss) if with_loss else None)
        for _ in self.updates():
            pass
        self.batch()
        watch.finish(grad=self.grad() if method.end_batches else None)
        self.optimizer.step()  # which nobody watches any more
        return path


def by_hand(method: Method, points: list[Point], *, with_loss: bool = True) -> GradientPath:
    path = method.start(points[0].theta)
    for theta, loss, grad in points[:-1]:
        path.observe(theta, loss if with_loss else 0.0, grad)
    theta, loss, grad = points[-1]
    path.finish(theta, loss if with_loss else 0.0, grad if method.end_batches else None)
    return path


def assert_same(one: GradientPath, other: GradientPath) -> None:
    assert one.segments == other.segments
    assert torch.equal(one.gradient(), other.gradient())
    assert one.metrics() == other.metrics()
    states = one.state_dict(), other.state_dict()
    assert states[0].keys() == states[1].keys()
    for name, tensor in states[0].items():
        assert torch.equal(tensor, states[1][name]), name


@pytest.mark.parametrize("clip", [math.inf, 0.1])
@pytest.mark.parametrize("optimizer", OPTIMIZERS)
@pytest.mark.parametrize("method", METHODS, ids=str)
def test_it_is_the_path_observed_by_hand(method: Method, optimizer: str, clip: float) -> None:
    make = OPTIMIZERS[optimizer]
    points = Loop(make, clip=clip).points()
    path = Loop(make, clip=clip).watched(method)
    assert path.segments == UPDATES
    assert path.gradient().norm() > 0
    assert_same(path, by_hand(method, points))


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
@pytest.mark.parametrize("method", [Leap(p=1, loss_in_path=False), Reptile()], ids=str)
def test_without_a_loss_it_is_the_path_without_one(method: Method, optimizer: str) -> None:
    make = OPTIMIZERS[optimizer]
    path = Loop(make).watched(method, with_loss=False)
    assert_same(path, by_hand(method, Loop(make).points(), with_loss=False))


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
@pytest.mark.parametrize("p", [1, 2])
def test_it_is_the_printed_gradient_in_float64(optimizer: str, p: Any) -> None:
    method = Leap(p=p, loss_scale=0.7)
    points = Loop(OPTIMIZERS[optimizer]).points()
    contribution = Loop(OPTIMIZERS[optimizer]).watched(method).gradient()
    assert_close(contribution, literal_eq_8(points, method))


class ActorCritic:
    """Two optimizers: the critic steps the encoder that both use, the actor its own layer."""

    def __init__(self, *, every: int) -> None:
        torch.manual_seed(5)
        self.encoder, self.critic, self.actor = nn.Linear(3, 4), nn.Linear(4, 1), nn.Linear(4, 2)
        self.shared = [*self.encoder.parameters(), *self.actor.parameters()]
        self.by_critic = [*self.encoder.parameters(), *self.critic.parameters()]
        self.optimizers = [
            torch.optim.Adam(self.by_critic, lr=0.01),
            torch.optim.Adam(self.actor.parameters(), lr=0.02),
        ]
        self.every, self.loss = every, torch.zeros(())

    def learn(self, before: Callable[[int], None]) -> None:
        for update in range(12):
            for number in (0, 1) if update % self.every == 0 else (0,):
                # Each backward pass reaches all parameters; an optimizer clears its own alone.
                features = self.encoder(torch.randn(8, 3))
                head = self.actor if number else self.critic
                self.optimizers[number].zero_grad()
                self.loss = (head(features).sum(1) - 1).square().mean()
                self.loss.backward()
                before(number)
                self.optimizers[number].step()

    def grad_of(self, number: int) -> Tensor:
        own = {id(p) for group in self.optimizers[number].param_groups for p in group["params"]}
        return torch.cat(
            [
                (p.grad if id(p) in own and p.grad is not None else torch.zeros_like(p)).ravel()
                for p in self.shared
            ]
        )


@pytest.mark.parametrize("every", [1, 3])
def test_a_round_of_several_optimizers_is_one_segment(every: int) -> None:
    method = Leap(p=1)
    loop = ActorCritic(every=every)
    path = method.start(parameters_to_vector(loop.shared).detach())
    with path.watch(loop.optimizers, loop.shared, lambda: loop.loss):
        loop.learn(lambda number: None)
        loop.loss = torch.tensor(0.5)

    loop = ActorCritic(every=every)
    rounds: list[list[Any]] = []
    newest = {0: torch.zeros(()), 1: torch.zeros(())}

    def note(number: int) -> None:
        newest[number] = loop.loss.detach()
        if number == 0:  # a round begins with the critic
            theta = parameters_to_vector(loop.shared).detach().clone()
            rounds.append([theta, torch.zeros(()), torch.zeros_like(theta)])
        rounds[-1][1] = newest[0] + newest[1]
        rounds[-1][2] = rounds[-1][2] + loop.grad_of(number)

    loop.learn(note)
    expected = method.start(rounds[0][0])
    for point in rounds:
        expected.observe(*point)
    expected.finish(parameters_to_vector(loop.shared).detach(), 0.5)
    assert expected.segments == 12
    assert_same(path, expected)


def test_a_delayed_optimizers_loss_is_its_last_one_and_a_removed_watch_keeps_its_round() -> None:
    parts = [nn.Parameter(torch.ones(1)) for _ in range(2)]
    critic, actor = (torch.optim.SGD([part], lr=0.0) for part in parts)
    path = Leap(p=2).start(torch.ones(2))
    values = iter([1.0, -100.0, 1.0, 1.0, -100.0, 1.0])
    watch = path.watch([critic, actor], parts, lambda: next(values))
    for optimizer in (critic, actor, critic, critic, actor):
        for part in parts:
            part.grad = torch.zeros(1)
        optimizer.step()
    critic.step()
    assert path.segments == 2
    watch.remove()
    path.finish(torch.ones(2), -99.0)
    assert path.segments == 4
    assert path.metrics()["energy"] == 0.0, "the loss is -99 all the way"


def test_an_optimizer_that_begins_later_changes_no_loss_by_that() -> None:
    parts = [nn.Parameter(torch.ones(1)) for _ in range(2)]
    critic, actor = (torch.optim.SGD([part], lr=0.0) for part in parts)
    path = Leap(p=2).start(torch.ones(2))
    values = iter([1.0, 1.0, -100.0, 1.0, 1.0, -97.0])
    watch = path.watch([critic, actor], parts, lambda: next(values))
    for optimizer in (critic, critic, actor, critic, critic, actor):
        for part in parts:
            part.grad = torch.zeros(1)
        optimizer.step()
    watch.finish(-96.0)
    assert path.segments == 4
    assert path.metrics()["energy"] == pytest.approx(3.0**2), "from -100 to -97"


def test_parameters_that_an_optimizer_takes_up_later_have_their_gradients() -> None:
    def path_of(*, later: bool) -> GradientPath:
        parts = [nn.Parameter(torch.tensor([2.0])) for _ in range(2)]
        optimizer = torch.optim.SGD(parts[: 1 if later else 2], lr=0.1)
        path = Leap(p=2).start(torch.cat(parts).detach())
        with path.watch(optimizer, parts, lambda: sum(part.square().sum() for part in parts)):
            for update in range(4):
                optimizer.zero_grad()
                sum((part.square().sum() for part in parts), torch.zeros(())).backward()
                if update < 2:
                    parts[1].grad = None
                elif later and update == 2:
                    optimizer.add_param_group({"params": parts[1]})
                optimizer.step()
        return path

    assert_same(path_of(later=True), path_of(later=False))


@pytest.mark.parametrize("fused", [False, True])
def test_gradients_that_amp_scales_are_taken_unscaled(fused: bool) -> None:
    def path_of(scaler: Any, *losses: float) -> GradientPath:
        part = nn.Parameter(torch.full((4,), 2.0))
        optimizer = torch.optim.SGD([part], lr=0.25, fused=fused)
        path = Leap(p=2).start(part.detach().clone())
        with path.watch(optimizer, [part], lambda: part.square().sum()):
            for times in losses:
                optimizer.zero_grad()
                scaler.scale(times * part.square().sum()).backward()
                scaler.step(optimizer)
                scaler.update()
        return path

    plain = path_of(torch.amp.GradScaler("cpu", enabled=False), 1.0, 1.0)
    scaled = path_of(torch.amp.GradScaler("cpu", init_scale=1024.0), 1.0, math.inf, 1.0)
    assert_same(plain, scaled)
    assert plain.segments == 2, "a step that is left out is none"


def test_what_another_optimizer_calls_so_is_its_own() -> None:
    class Own(torch.optim.Optimizer):
        grad_scale, found_inf = "mine", ("mine",)

        def step(self, closure: Any = None) -> None:
            part.data -= torch.ones(4)

    part = nn.Parameter(torch.full((4,), 2.0))
    optimizer = Own([part], {})
    path = Reptile().start(part.detach().clone())
    with path.watch(optimizer, [part]):
        part.grad = torch.ones(4)
        optimizer.step()
    assert torch.equal(path.gradient(), torch.ones(4))


def test_left_by_an_exception_it_ends_and_the_path_stays_open() -> None:
    loop = Loop(OPTIMIZERS["sgd"])
    path = Leap().start(loop.theta())

    def interrupted() -> None:
        with path.watch(loop.optimizer, loop.shared, lambda: loop.loss):
            for number, _ in enumerate(loop.updates()):
                if number == 3:
                    raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    loop.optimizer.step()
    assert path.segments == 2
    path.finish(loop.theta(), 1.0)  # it is not finished


def test_a_loss_that_is_not_finite_stops_the_loop_before_its_step() -> None:
    loop = Loop(OPTIMIZERS["sgd"])
    watch = Leap().start(loop.theta()).watch(loop.optimizer, loop.shared, lambda: math.nan)
    before = loop.theta()
    loop.batch()
    with pytest.raises(NonFiniteError, match="loss at the start of segment 0 is nan"):
        loop.optimizer.step()
    assert torch.equal(loop.theta(), before)
    watch.remove()
    loop.optimizer.step()


def test_what_cannot_be_watched_is_refused() -> None:
    loop = Loop(OPTIMIZERS["adam"])
    path = Reptile().start(loop.theta())
    other = nn.Linear(2, 2)
    with pytest.raises(ValueError, match="parameters: have 74 elements, and theta0 has 80"):
        path.watch(loop.optimizer, loop.encoder)
    with pytest.raises(ValueError, match="optimizer 0: steps none of parameters"):
        path.watch(torch.optim.SGD(other.parameters()), loop.shared)
    up = torch.optim.SGD(loop.shared, maximize=True)
    with pytest.raises(ValueError, match="optimizer 0: maximizes, and a path descends a loss"):
        path.watch(up, loop.shared)
    with pytest.raises(ValueError, match="optimizer: must be at least one"):
        path.watch([], loop.shared)
    with pytest.raises(ValueError, match=r"parameters\[4\]: must be torch.float32 on cpu"):
        path.watch(loop.optimizer, [*loop.encoder.parameters(), loop.unused.double()])
    with pytest.raises(ValueError, match="loss: the path runs through it"):
        Leap().start(loop.theta()).watch(loop.optimizer, loop.shared)
    with pytest.raises(ValueError, match="parameters: are not at theta0; copy it into them"):
        Reptile().start(loop.theta() + 1).watch(loop.optimizer, loop.shared)
    with path.watch(loop.optimizer, loop.shared):
        with pytest.raises(ValueError, match=r"optimizer.step\(closure\): the gradient is"):
            loop.optimizer.step(lambda: 0.0)
        loop.batch()
        loop.optimizer.step()
