from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from leap_rl.learners.a2c.distributions import Categorical, Gaussian
from leap_rl.learners.a2c.loss import (
    Distribution,
    Targets,
    Weights,
    a2c_loss,
)
from leap_rl.networks.actor_critic import Outputs
from tests.learners.literal_loss import literal_loss

C_V, C_E = 0.5, 0.3
TOTAL = Weights(policy=1.0, value=C_V, entropy=-C_E)


POLICIES = [Categorical(1), Categorical(6), Categorical(18), Gaussian(1), Gaussian(3)]


def random_batch(policies: Distribution, *shape: int) -> tuple[Outputs, Targets]:
    """Not at the parameters that acted: the advantages are others than R - V."""
    generator = torch.Generator().manual_seed(0)

    def normal(*size: int) -> Tensor:
        return torch.randn(*size, generator=generator)

    if isinstance(policies, Categorical):
        actions = torch.randint(0, policies.num_actions, shape, generator=generator)
    else:
        actions = normal(*shape, policies.num_logits // 2)
    return (
        Outputs(2.0 * normal(*shape, policies.num_logits), normal(*shape)),
        Targets(actions, 2.0 * normal(*shape), normal(*shape)),
    )


def exact(predictions: Outputs) -> Outputs:
    """In float64, to be differentiated."""
    return Outputs(*(part.double().requires_grad_() for part in predictions))


def test_by_hand() -> None:
    # Row 0: uniform over 3, advantage 2. Row 1: policy (1/2, 1/4, 1/4), action 1, advantage -1.
    loss, _ = a2c_loss(
        Categorical(3),
        Outputs(
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


def test_a_gaussian_by_hand() -> None:
    # Mean 1, σ = 2, action 5: z = 2. Advantage 3.
    loss, _ = a2c_loss(
        Gaussian(1),
        Outputs(torch.tensor([[1.0, math.log(2.0)]]), torch.zeros(1)),
        Targets(torch.tensor([[5.0]]), torch.zeros(1), torch.tensor([3.0])),
        TOTAL,
    )
    density = math.exp(-(2.0**2) / 2) / (2.0 * math.sqrt(2 * math.pi))
    assert loss.policy.item() == pytest.approx(-3.0 * math.log(density))
    assert loss.entropy.item() == pytest.approx(0.5 * math.log(2 * math.pi * math.e * 4))


@pytest.mark.parametrize("policies", POLICIES)
def test_the_loss_is_the_literal_one(policies: Distribution) -> None:
    predictions, targets = random_batch(policies, 5, 3)
    expected = literal_loss(
        exact(predictions), targets, value_coefficient=C_V, entropy_coefficient=C_E
    )
    for part, literal in zip(
        a2c_loss(policies, predictions, targets, TOTAL)[0], expected, strict=True
    ):
        assert part.item() == pytest.approx(literal.item(), rel=1e-6, abs=1e-12)


@pytest.mark.parametrize("policies", [Categorical(4), Gaussian(2)])
@pytest.mark.parametrize(
    ("part", "weights"),
    [
        ("total", TOTAL),
        ("policy", Weights(policy=1.0)),
        ("value", Weights(value=1.0)),
        ("entropy", Weights(entropy=1.0)),
    ],
)
def test_the_gradient_of_each_part_is_autograds(
    part: str, weights: Weights, policies: Distribution
) -> None:
    predictions, targets = random_batch(policies, 5, 3)
    at = exact(predictions)
    loss = literal_loss(at, targets, value_coefficient=C_V, entropy_coefficient=C_E)
    expected = torch.autograd.grad(getattr(loss, part), at, allow_unused=True)
    _, gradient = a2c_loss(policies, predictions, targets, weights)
    for own, literal in zip(gradient, expected, strict=True):
        if literal is None:
            assert not own.any()
        else:
            assert own.shape == literal.shape
            assert literal.abs().max() > 1e-2
            torch.testing.assert_close(own.double(), literal, rtol=1e-5, atol=1e-8)


@pytest.mark.parametrize("policies", [Categorical(4), Gaussian(2)])
def test_actions_that_were_not_taken_are_in_no_mean(policies: Distribution) -> None:
    predictions, targets = random_batch(policies, 5, 3)
    taken = torch.rand(5, 3, generator=torch.Generator().manual_seed(1)) > 0.4
    at = exact(predictions)
    literal = literal_loss(
        Outputs(*(part[taken] for part in at)),
        Targets(*(part[taken] for part in targets[:3])),
        value_coefficient=C_V,
        entropy_coefficient=C_E,
    )
    expected = torch.autograd.grad(literal.total, at)
    for part in (*predictions, targets.returns, targets.advantages):
        part[~taken] = math.nan
    targets = targets._replace(taken=taken)
    loss, gradient = a2c_loss(policies, predictions, targets, TOTAL)
    for own, exactly in zip(loss, literal, strict=True):
        assert own.item() == pytest.approx(exactly.item(), rel=1e-6)
    for own, exactly in zip(gradient, expected, strict=True):
        torch.testing.assert_close(own.double(), exactly, rtol=1e-5, atol=1e-8)
        assert not own[~taken].any()


@pytest.mark.parametrize("num_actions", [1, 6, 18])
def test_the_entropy_of_a_uniform_policy_is_log_a(num_actions: int) -> None:
    loss, _ = a2c_loss(
        Categorical(num_actions),
        Outputs(torch.full((5, num_actions), 3.7), torch.zeros(5)),
        Targets(torch.zeros(5, dtype=torch.int64), torch.zeros(5), torch.zeros(5)),
        Weights(1.0, 1.0, -1.0),
    )
    assert loss.entropy.item() == pytest.approx(math.log(num_actions), abs=1e-12)
    assert loss.total.item() == pytest.approx(-math.log(num_actions), abs=1e-12)


def test_a_certain_policy_has_no_entropy_and_no_nan() -> None:
    predictions = Outputs(torch.tensor([[500.0, -500.0]]), torch.zeros(1))
    targets = Targets(torch.tensor([0]), torch.ones(1), torch.ones(1))
    loss, _ = a2c_loss(Categorical(2), predictions, targets, TOTAL)
    assert loss.entropy.item() == 0
    _, gradient = a2c_loss(Categorical(2), predictions, targets, Weights(policy=1.0, entropy=-0.01))
    assert torch.equal(gradient.logits, torch.zeros(1, 2))


@pytest.mark.parametrize("wrong", [math.nan, math.inf, -math.inf])
def test_what_is_not_finite_is_not_hidden(wrong: float) -> None:
    for part in ("logits", "values"):
        predictions, targets = random_batch(Categorical(4), 6)
        # Of an action that was not taken.
        index = (0, 1 + int(targets.actions[0]) % 3) if part == "logits" else (0,)
        getattr(predictions, part)[index] = wrong
        loss, _ = a2c_loss(Categorical(4), predictions, targets, TOTAL)
        assert not math.isfinite(loss.total.item())
    actions = Categorical(3).sample(torch.full((8, 3), wrong), torch.Generator().manual_seed(0))
    assert ((actions >= 0) & (actions < 3)).all()
    for number in range(4):
        predictions, targets = random_batch(Gaussian(2), 6)
        predictions.logits[0, number] = wrong
        loss, _ = a2c_loss(Gaussian(2), predictions, targets, TOTAL)
        assert not math.isfinite(loss.total.item())
    actions = Gaussian(2).sample(torch.full((8, 4), wrong), torch.Generator().manual_seed(0))
    assert actions.isfinite().all()


@pytest.mark.parametrize("policies", [Categorical(4), Gaussian(2)])
def test_a_batch_repeated_has_the_same_loss_whatever_lies_how_in_memory(
    policies: Distribution,
) -> None:
    predictions, targets = random_batch(policies, 12)
    once, _ = a2c_loss(policies, predictions, targets, TOTAL)
    twice = Outputs(*(torch.stack([part, part], dim=1) for part in predictions))
    crossed = Outputs(twice.logits.transpose(0, 1), twice.values.t())
    again = Targets(*(torch.stack([part, part]) for part in targets[:3]))
    repeated, _ = a2c_loss(policies, crossed, again, TOTAL)
    for a, b in zip(once, repeated, strict=True):
        assert a.item() == pytest.approx(b.item(), abs=1e-12)


def test_actions_are_drawn_from_the_policy() -> None:
    policy = torch.tensor([0.1, 0.6, 0.3])
    logits = policy.log().repeat(20_000, 1) + 4.0
    actions = Categorical(3).sample(logits, torch.Generator().manual_seed(0))
    assert actions.shape == (20_000,)
    assert actions.dtype == torch.int64
    shares = torch.bincount(actions, minlength=3) / 20_000
    # The greatest standard deviation of a share is √(0.6·0.4/20000) = 0.0035.
    assert torch.allclose(shares, policy, atol=0.015)


def test_each_row_is_drawn_by_its_own_policy_from_the_given_stream() -> None:
    rows = torch.arange(64) % 5
    logits = torch.nn.functional.one_hot(rows, 5) * 1000.0
    before = torch.random.get_rng_state()
    assert torch.equal(Categorical(5).sample(logits, torch.Generator().manual_seed(0)), rows)
    assert torch.equal(torch.random.get_rng_state(), before)
    uniform = torch.zeros(64, 5)
    draws = [Categorical(5).sample(uniform, torch.Generator().manual_seed(s)) for s in (1, 1, 2)]
    assert torch.equal(draws[0], draws[1])
    assert not torch.equal(draws[0], draws[2])


def test_numbers_are_drawn_from_the_gaussian() -> None:
    logits = torch.tensor([1.0, -2.0, 0.0, math.log(3.0)]).repeat(20_000, 1)
    draws = [Gaussian(2).sample(logits, torch.Generator().manual_seed(s)) for s in (0, 0, 1)]
    assert torch.equal(draws[0], draws[1])
    assert not torch.equal(draws[0], draws[2])
    assert draws[0].shape == (20_000, 2)
    # A mean's standard deviation is σ/√20000, at most 0.021.
    assert torch.allclose(draws[0].mean(0), torch.tensor([1.0, -2.0]), atol=0.09)
    assert torch.allclose(draws[0].std(0), torch.tensor([1.0, 3.0]), atol=0.09)
    assert torch.equal(Gaussian(2).mode(logits[:1]), torch.tensor([[1.0, -2.0]]))
