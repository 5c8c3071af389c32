from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from leap_rl.core.choices import LossDifference
from leap_rl.learners.config import AgentConfig
from leap_rl.learners.gradient_descent.learner import GradientDescent
from leap_rl.learners.gradient_descent.task import (
    DIMENSION,
    QuadraticTask,
    bowl,
)
from leap_rl.learners.task import TaskSpec
from leap_rl.meta import Leap
from leap_rl.meta.gradient_path import Point
from leap_rl.tasks.config import TaskConfig
from leap_rl.tasks.suites import QUADRATIC_GAMES

LR = 0.1
LEARNER = GradientDescent(task=TaskConfig(kind="quadratic"), agent=AgentConfig())


def budget(
    updates: int, agent_steps_per_update: int = 1, *, loss_difference: LossDifference = "next_batch"
) -> dict[str, Any]:
    return {
        "updates": updates,
        "agent_steps_per_update": agent_steps_per_update,
        "loss_difference": loss_difference,
    }


def test_without_noise_the_path_has_its_closed_form(monkeypatch: pytest.MonkeyPatch) -> None:
    """θᵏ − c = (1 − αa)ᵏ (θ⁰ − c), so the energy's gradient is a sum of geometric series."""
    monkeypatch.setattr("leap_rl.learners.gradient_descent.task.NOISE", 0.0)
    updates = 20
    task = QuadraticTask(
        TaskSpec(game="bowl_1", seed=0), lr=LR, **budget(updates, loss_difference="next_batch")
    )
    theta0 = LEARNER.random_initialization(5)
    task.start(theta0)
    path = Leap(p=2, loss_in_path=False).start(theta0)
    while not task.done:
        task.advance(path.visit)
    end = task.end_point(with_grad=False)
    path.finish(end.theta, end.loss)

    a, c = (x.double().numpy() for x in (bowl("bowl_1").curvature, bowl("bowl_1").lowest))
    offset = theta0.double().numpy() - c
    end_expected = c + (1 - LR * a) ** updates * offset
    np.testing.assert_allclose(end.theta.numpy(), end_expected, atol=1e-6)
    np.testing.assert_allclose(
        path.gradient().numpy(), -2 * (end_expected - theta0.double().numpy()), atol=1e-5
    )
    squares = [np.sum((LR * a * (1 - LR * a) ** k * offset) ** 2) for k in range(updates)]
    assert path.metrics()["energy"] == pytest.approx(sum(squares), rel=1e-5)


def test_noise_comes_from_the_tasks_seed_and_shrinks_with_the_batch() -> None:
    def losses(seed: int, batch: int) -> list[float]:
        task = QuadraticTask(
            TaskSpec(game="bowl_0", seed=seed),
            **budget(200, batch),
            lr=1e-12,
        )
        task.start(LEARNER.random_initialization(0))
        seen: list[float] = []
        while not task.done:
            task.advance(lambda point: seen.append(float(point.loss)))
        return seen

    assert losses(1, 4) == losses(1, 4)
    assert losses(1, 4) != losses(2, 4)
    # The loss is linear in a small displacement: its deviation falls with the root of the batch.
    assert np.std(losses(1, 1)) / np.std(losses(1, 16)) == pytest.approx(4.0, rel=0.15)


def test_same_batch_reports_the_batch_again_after_its_update() -> None:
    task = QuadraticTask(
        TaskSpec(game="bowl_0", seed=9), lr=LR, **budget(3, loss_difference="same_batch")
    )
    task.start(LEARNER.random_initialization(0))
    previous: list[float | None] = []

    def observe(point: Point) -> None:
        again, loss, grad = point.previous_batch_loss, point.loss, point.grad
        assert grad is not None
        previous.append(None if again is None else float(again))
        # One step down a quadratic: f(θ − α∇f) = f − α|∇f|² + ½ α² ∇fᵀA∇f, on the same batch.
        a = bowl("bowl_0").curvature
        expected.append(float(loss - LR * grad @ grad + 0.5 * LR**2 * grad @ (a * grad)))

    expected: list[float] = []
    while not task.done:
        task.advance(observe)
    end = task.end_point(with_grad=False)
    assert end.previous_batch_loss is not None
    assert previous[0] is None
    assert [*previous[1:], float(end.previous_batch_loss)] == pytest.approx(expected, rel=1e-4)


def test_bowls_are_eight_different_ones_in_every_run() -> None:
    lowest = {tuple(bowl(game).lowest.tolist()) for game in QUADRATIC_GAMES}
    assert len(lowest) == 8
    assert torch.equal(bowl("bowl_3").lowest, bowl("bowl_3").lowest)
    assert LEARNER.shared_layout().size == DIMENSION
