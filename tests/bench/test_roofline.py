"""The roofline: operations counted in closed form, and a rate that the clock confirms."""

from __future__ import annotations

import time
from functools import partial

import pytest
import torch

from leap_rl.bench.roofline import Product, highest_rate, roofline, work_of
from leap_rl.networks.actor_critic import ActorCritic

BATCH, UNROLL, ACTIONS = 4, 5, 6


def test_operations_are_those_of_the_layers_and_of_their_gradients() -> None:
    network = ActorCritic("mnih2013", observation_shape=(84, 84, 4), num_logits=ACTIONS)
    work = work_of(network, torch.zeros((BATCH, 84, 84, 4), dtype=torch.uint8), unroll=UNROLL)
    rows = BATCH * UNROLL
    assert work.products == (
        Product(rows * 20 * 20, 8 * 8 * 4, 16),
        Product(rows * 9 * 9, 4 * 4 * 16, 32),
        Product(rows, 9 * 9 * 32, 256),
        Product(rows, 256, ACTIONS),
        Product(rows, 256, 1),
    )
    first, *others = (2 * n * k * m / rows for n, k, m in work.products)
    # Forward and bootstrap; each weight's gradient; and that of each input but the observations.
    passes = (1 + 1 / UNROLL) * (first + sum(others)) + (first + sum(others)) + sum(others)
    assert work.operations == pytest.approx(passes)


def test_the_rate_is_that_of_the_fastest_product() -> None:
    small, large = Product(1, 2, 1), Product(256, 256, 256)
    measured = partial(highest_rate, dtype=torch.float32, device="cpu")
    rate, slow = measured((small, large), seconds=0.2), measured((small,), seconds=0.05)
    assert rate.wall > 10 * slow.wall
    ones, calls = torch.ones(256, 256), 200
    started_s = time.process_time()
    for _ in range(calls):
        torch.mm(ones, ones)
    plainly = calls * 2 * 256**3 / (time.process_time() - started_s)
    assert 0.2 < rate.cpu / plainly < 5


def test_the_least_time_is_the_emulators_and_that_of_the_products() -> None:
    found = roofline(1000.0, 4000.0, [1e9, 2e9, 9e9], 1e5)
    assert (found["emulator_us"], found["products_us"], found["least_us"]) == (250.0, 50.0, 300.0)
    assert found["fraction"] == 0.3
