"""What methods other than Leap ask of every task: a gradient at its end, and rounds that go on."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from leap_rl.learners.config import AgentConfig
from leap_rl.learners.learner import Learner
from leap_rl.learners.registry import make_learner
from leap_rl.learners.task import Progress, Task, TaskSpec
from leap_rl.meta import FOMAML
from leap_rl.meta.gradient_path import Point
from leap_rl.tasks.config import TaskConfig
from leap_rl.training.trainer.trainer import end_of_path

BOWLS = make_learner(
    task=TaskConfig(kind="quadratic", games="all", agent_steps=12, num_envs=2, unroll_length=1),
    agent=AgentConfig(lr=0.01),
)
CATCH = make_learner(
    task=TaskConfig(kind="catch", games="all", agent_steps=120, num_envs=4, unroll_length=5),
    agent=AgentConfig(lr=1e-3, max_grad_norm=0.5),
)
POLICY = replace(CATCH, agent=replace(CATCH.agent, path_loss="policy"))

every_kind = pytest.mark.parametrize("make", [BOWLS, CATCH], ids=["bowls", "catch"])


@dataclass
class Watcher:
    """Keeps copies of the points that it is shown."""

    points: list[tuple[Tensor, float, Tensor]] = field(default_factory=list)
    previous: list[Tensor | float | None] = field(default_factory=list)
    lengths: list[float | None] = field(default_factory=list)

    def __call__(self, point: Point) -> None:
        assert point.grad is not None
        self.points.append((point.theta.clone(), float(point.loss), point.grad.clone()))
        self.previous.append(point.previous_batch_loss)
        self.lengths.append(point.step_length)


def with_updates(make: Learner, updates: int) -> Learner:
    budget = updates * make.task.agent_steps_per_update
    return replace(make, task=replace(make.task, agent_steps=budget))


def begin(make: Learner, seed: int = 3) -> Task:
    return make(TaskSpec(game=make.task.resolved_games[0], seed=seed))


def learn(task: Task) -> tuple[Watcher, list[Progress]]:
    watcher, progress = Watcher(), []
    while not task.done:
        progress.append(task.advance(watcher))
    return watcher, progress


def assert_same(one: list[tuple[Tensor, float, Tensor]], two: Any) -> None:
    for (theta, loss, grad), (theta_two, loss_two, grad_two) in zip(one, two, strict=True):
        assert torch.equal(theta, theta_two)
        assert loss == loss_two
        assert torch.equal(grad, grad_two)


@pytest.mark.parametrize("make", [BOWLS, CATCH, POLICY], ids=["bowls", "catch", "policy"])
def test_the_end_point_is_what_one_more_update_would_see(make: Learner) -> None:
    theta0 = make.random_initialization(1)
    longer = begin(with_updates(make, make.task.updates + 1))
    longer.start(theta0)
    theta, loss, grad = learn(longer)[0].points[-1]
    assert grad.norm() > 0

    task = begin(make)
    task.start(theta0)
    path = FOMAML().start(theta0, borrow=True)
    while not task.done:
        task.advance(path.visit)
    end = task.end_point(with_grad=True)
    assert end.grad is not None
    assert_same([(theta, loss, grad)], [(end.theta, float(end.loss), end.grad)])
    path.finish(end.theta, end.loss, end.grad, step_length=end.step_length)
    assert torch.equal(path.gradient(), grad)

    several = begin(make)
    several.start(theta0)
    learn(several)
    ends = []
    for _ in range(3):
        end = several.end_point(with_grad=True)
        assert end.grad is not None
        ends.append((float(end.loss), end.grad.double()))
    again = begin(make)
    again.start(theta0)
    learn(again)
    mean = end_of_path(again, batches=3)
    assert mean.grad is not None
    assert float(mean.loss) == pytest.approx(sum(loss for loss, _ in ends) / 3, rel=1e-5)
    expected = sum((grad for _, grad in ends), torch.zeros(())) / 3
    torch.testing.assert_close(mean.grad.double(), expected, rtol=1e-4, atol=1e-6)
    assert not torch.allclose(mean.grad, ends[0][1].float(), rtol=1e-2), "batches differ"

    without = begin(make)
    without.start(theta0)
    learn(without)
    end = without.end_point(with_grad=False)
    assert end.grad is None
    assert float(end.loss) == loss


@every_kind
def test_a_round_that_starts_from_the_last_ones_end_is_no_break(make: Learner) -> None:
    theta0 = make.random_initialization(1)
    whole = begin(with_updates(make, 2 * make.task.updates))
    whole.start(theta0)
    expected, _ = learn(whole)

    first = begin(make)
    first.start(theta0)
    watched, one = learn(first)
    state, theta = first.state(), first.end_point(with_grad=False).theta.clone()
    # Another seed: whatever does not go on would be drawn from it.
    second = begin(make, seed=99)
    second.carry_over(state, theta)
    watched_then, two = learn(second)

    assert_same(watched.points + watched_then.points, expected.points)
    ends, ends_whole = second.named_parameters(), whole.named_parameters()
    assert all(torch.equal(ends[name], ends_whole[name]) for name in ends)
    assert [p.updates for p in two] == [p.updates for p in one] == list(range(1, len(one) + 1))
    assert [p.agent_steps for p in two] == [p.agent_steps for p in one]


@every_kind
def test_all_but_shared_parameters_and_budget_is_carried_over(
    make: Learner,
) -> None:
    first = begin(make)
    first.start(make.random_initialization(1))
    learn(first)
    before, theta0 = first.state(), make.random_initialization(2)

    task = begin(make, seed=99)
    task.carry_over(before, theta0)
    after = task.state()
    named = task.named_parameters(), first.named_parameters()
    heads = {name for name in named[0] if not name.startswith(("encoder", "theta"))}
    assert len(heads) == (0 if make is BOWLS else 4)
    assert all(torch.equal(named[0][name], named[1][name]) for name in heads)
    changed = {name for name in before if not np.array_equal(before[name], after.get(name))}
    if make is BOWLS:
        assert changed == {"theta", "updates"}
    else:
        assert changed == {"learner.parameters", "learner.step_length", "updates", "agent_steps"}
        assert before["learner.optimizer.mean_square"].any()
    assert after["updates"] == 0

    watcher, _ = learn(task)
    assert torch.equal(watcher.points[0][0], theta0)
    assert not torch.equal(task.end_point(with_grad=False).theta, theta0)


@every_kind
def test_neither_a_batch_nor_a_step_precedes_the_first_of_a_round(make: Learner) -> None:
    make = replace(make, loss_difference="same_batch")
    first = begin(make)
    first.start(make.random_initialization(1))
    learn(first)
    task = begin(make)
    task.carry_over(first.state(), make.random_initialization(2))
    watcher, _ = learn(task)
    assert watcher.previous[0] is None
    assert None not in watcher.previous[1:]
    assert watcher.lengths[0] is None, "no step of the optimizer led there"
    assert (None in watcher.lengths[1:]) == (make.task.kind == "quadratic")


def test_episodes_continue_from_round_to_round() -> None:
    """Rounds of 20 agent steps an environment; an episode of Catch is longer than that."""
    make = with_updates(CATCH, 4)
    rounds = 8
    whole = begin(with_updates(CATCH, 4 * rounds))
    whole.start(make.random_initialization(1))
    expected = [end for p in learn(whole)[1] for end in p.episodes]
    assert expected[0].length > 20

    task = begin(make)
    task.start(make.random_initialization(1))
    ends = []
    for number in range(rounds):
        ends += [
            end._replace(agent_steps=end.agent_steps + 80 * number)
            for p in learn(task)[1]
            for end in p.episodes
        ]
        state = task.state()
        theta = task.end_point(with_grad=False).theta.clone()
        task.close()
        task = begin(make, seed=number)
        task.carry_over(state, theta)
    assert ends == expected
