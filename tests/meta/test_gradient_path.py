"""The path of no method, and what all paths have in common."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch

from leap_rl.meta import Leap, NoMethod, NonFiniteError, Reptile
from leap_rl.meta.gradient_path import Method


def test_the_null_path_counts_and_contributes_nothing():
    path = NoMethod().start(torch.ones(3))
    for i in range(4):
        path.observe(torch.full((3,), 1.0 - i), torch.tensor(float(i)), torch.ones(3))
    path.finish(torch.zeros(3), 0.0)
    assert path.segments == 4
    assert torch.equal(path.gradient(), torch.zeros(3))
    assert path.gradient().dtype == torch.float32
    assert path.metrics() == {"first_step": 1.0}


def test_the_null_path_refuses_a_loss_that_is_not_finite():
    path = NoMethod().start(torch.ones(3))
    path.observe(torch.ones(3), 1.0, torch.ones(3))
    with pytest.raises(NonFiniteError, match="loss at the start of segment 1 is nan"):
        path.observe(torch.ones(3), torch.tensor(math.nan), torch.ones(3))
    with pytest.raises(NonFiniteError, match="loss at the end of segment 0 is inf"):
        path.finish(torch.ones(3), math.inf)
    assert path.segments == 0


@pytest.mark.parametrize("method", [NoMethod(), Reptile(), Leap(), Leap(metric="optimizer")])
def test_an_optimizer_that_overflowed_is_told(method: Method):
    """Its parameters would stand still from then on, all of them finite."""
    path = method.start(torch.ones(3))
    path.observe(torch.ones(3), 1.0, torch.ones(3))
    with pytest.raises(NonFiniteError, match="the optimizer's state at the start of segment 1"):
        path.observe(torch.ones(3), 1.0, torch.ones(3), step_length=math.nan)
    assert path.segments == 0


@pytest.mark.parametrize("metric", ["euclidean", "optimizer"])
@pytest.mark.parametrize(("loss_scale", "loss"), [(1.0, 4e38), (1e6, 4e26), (1.0, 1e200)])
def test_a_loss_difference_that_no_weight_can_hold_is_told(
    metric: Any, loss_scale: float, loss: float
):
    path = Leap(metric=metric, loss_scale=loss_scale).start(torch.ones(3))
    path.observe(torch.ones(3), 0.0, torch.ones(3))
    before = path.metrics()
    with pytest.raises(NonFiniteError, match="the loss at the start of segment 1 changed by"):
        path.observe(torch.zeros(3), loss, torch.ones(3))
    assert (path.segments, path.metrics()) == (0, before)
