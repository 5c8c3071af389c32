from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from leap_rl.rl.loss import (
    A2CLoss,
    Predictions,
    Targets,
    Weights,
    a2c_gradient,
    a2c_loss,
    sample_actions,
)
from tests.rl.literal_loss import literal_loss

C_V, C_E = 0.5, 0.3
TOTAL = Weights(policy=1.0, value=C_V, entropy=-C_E)


def random_batch(*shape: int, num_actions: int = 4) -> tuple[Predictions, Targets]:
    """Not at the parameters that acted: the advantages are others than R - V."""
    generator = torch.Generator().manual_seed(0)

    def normal(*size: int) -> Tensor:
        return torch.randn(*size, generator=generator)

    actions = torch.randint(0, num_actions, shape, generator=generator)
    return (
        Predictions(2.0 * normal(*shape, num_actions), normal(*shape)),
        Targets(actions, 2.0 * normal(*shape), normal(*shape)),
    )


def exact(predictions: Predictions) -> Predictions:
    """In float64, to be differentiated."""
    return Predictions(*(part.double().requires_grad_() for part in predictions))


def test_by_hand() -> None:
    # Row 0: uniform over 3, advantage 2. Row 1: policy (1/2, 1/4, 1/4), action 1, advantage -1.
    loss = a2c_loss(
        Predictions(
            torch.tensor([[0.0, 0.0, 0.0], [math.log(2.0), 0.0, 0.0]]), torch.tensor([1.0, 5.0])
        ),
        Targets(torch.tensor([2, 1]), torch.tensor([3.0, 4.0]), torch.tensor([2.0, -1.0])),
        Weights(1.0, 0.5, -0.1),
    )
    policy = -(2.0 * math.log(1 / 3) + -1.0 * math.log(1 / 4)) / 2
    entropy = (math.log(3) + (0.5 * math.log(2) + 0.5 * math.log(4))) / 2
    assert loss.policy.item() == pytest.approx(policy)
    assert loss.value.item() == pytest.approx((4 + 1) / 2)
    assert loss.entropy.item() == pytest.approx(entropy)
    assert loss.total.item() == pytest.approx(policy + 0.5 * 2.5 - 0.1 * entropy)
    assert all(part.ndim == 0 and part.dtype == torch.float64 for part in loss)


@pytest.mark.parametrize("num_actions", [1, 6, 18])
def test_the_loss_is_the_literal_one(num_actions: int) -> None:
    predictions, targets = random_batch(5, 3, num_actions=num_actions)
    expected = literal_loss(
        exact(predictions), targets, value_coefficient=C_V, entropy_coefficient=C_E
    )
    for part, literal in zip(a2c_loss(predictions, targets, TOTAL), expected, strict=True):
        assert part.item() == pytest.approx(literal.item(), rel=1e-6, abs=1e-12)


@pytest.mark.parametrize(
    ("part", "weights"),
    [
        ("total", TOTAL),
        ("policy", Weights(policy=1.0)),
        ("value", Weights(value=1.0)),
        ("entropy", Weights(entropy=1.0)),
    ],
)
def test_the_gradient_of_each_part_is_autograds(part: str, weights: Weights) -> None:
    predictions, targets = random_batch(5, 3)
    at = exact(predictions)
    loss = literal_loss(at, targets, value_coefficient=C_V, entropy_coefficient=C_E)
    expected = torch.autograd.grad(getattr(loss, part), at, allow_unused=True)
    for own, literal in zip(a2c_gradient(predictions, targets, weights), expected, strict=True):
        if literal is None:
            assert not own.any()
        else:
            assert own.shape == literal.shape
            assert literal.abs().max() > 1e-2
            torch.testing.assert_close(own.double(), literal, rtol=1e-5, atol=1e-8)


@pytest.mark.parametrize("num_actions", [1, 6, 18])
def test_the_entropy_of_a_uniform_policy_is_log_a(num_actions: int) -> None:
    loss = a2c_loss(
        Predictions(torch.full((5, num_actions), 3.7), torch.zeros(5)),
        Targets(torch.zeros(5, dtype=torch.int64), torch.zeros(5), torch.zeros(5)),
        Weights(1.0, 1.0, -1.0),
    )
    assert loss.entropy.item() == pytest.approx(math.log(num_actions), abs=1e-12)
    assert loss.total.item() == pytest.approx(-math.log(num_actions), abs=1e-12)


def test_a_certain_policy_has_no_entropy_and_no_nan() -> None:
    predictions = Predictions(torch.tensor([[500.0, -500.0]]), torch.zeros(1))
    targets = Targets(torch.tensor([0]), torch.ones(1), torch.ones(1))
    loss = a2c_loss(predictions, targets, TOTAL)
    assert loss.entropy.item() == 0
    gradient = a2c_gradient(predictions, targets, Weights(policy=1.0, entropy=-0.01))
    assert torch.equal(gradient.logits, torch.zeros(1, 2))


@pytest.mark.parametrize("wrong", [math.nan, math.inf, -math.inf])
def test_what_is_not_finite_is_not_hidden(wrong: float) -> None:
    for part in ("logits", "values"):
        predictions, targets = random_batch(6)
        # Of an action that was not taken.
        index = (0, 1 + int(targets.actions[0]) % 3) if part == "logits" else (0,)
        getattr(predictions, part)[index] = wrong
        loss = a2c_loss(predictions, targets, TOTAL)
        assert not math.isfinite(loss.total.item())
    actions = sample_actions(torch.full((8, 3), wrong), torch.Generator().manual_seed(0))
    assert ((actions >= 0) & (actions < 3)).all()


def test_a_batch_repeated_has_the_same_loss_whatever_lies_how_in_memory() -> None:
    predictions, targets = random_batch(12)
    once = a2c_loss(predictions, targets, TOTAL)
    twice = Predictions(*(torch.stack([part, part], dim=1) for part in predictions))
    crossed = Predictions(twice.logits.transpose(0, 1), twice.values.t())
    again = a2c_loss(crossed, Targets(*(part.repeat(2, 1) for part in targets)), TOTAL)
    for a, b in zip(once, again, strict=True):
        assert a.item() == pytest.approx(b.item(), abs=1e-12)


def test_path_loss_by_name() -> None:
    loss = A2CLoss(*(torch.tensor(float(i)) for i in range(4)))
    assert [loss.path_loss(name).item() for name in ("total", "policy", "value")] == [0, 1, 2]


def test_actions_are_drawn_from_the_policy() -> None:
    policy = torch.tensor([0.1, 0.6, 0.3])
    logits = policy.log().repeat(20_000, 1) + 4.0
    actions = sample_actions(logits, torch.Generator().manual_seed(0))
    assert actions.shape == (20_000,)
    assert actions.dtype == torch.int64
    shares = torch.bincount(actions, minlength=3) / 20_000
    # The greatest standard deviation of a share is √(0.6·0.4/20000) = 0.0035.
    assert torch.allclose(shares, policy, atol=0.015)


def test_each_row_is_drawn_by_its_own_policy_from_the_given_stream() -> None:
    rows = torch.arange(64) % 5
    logits = torch.nn.functional.one_hot(rows, 5) * 1000.0
    before = torch.random.get_rng_state()
    assert torch.equal(sample_actions(logits, torch.Generator().manual_seed(0)), rows)
    assert torch.equal(torch.random.get_rng_state(), before)
    uniform = torch.zeros(64, 5)
    draws = [sample_actions(uniform, torch.Generator().manual_seed(s)) for s in (1, 1, 2)]
    assert torch.equal(draws[0], draws[1])
    assert not torch.equal(draws[0], draws[2])
