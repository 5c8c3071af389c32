from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from leap_rl.rl.loss import A2CLoss, a2c_loss, sample_actions


def random_batch(num: int = 12, num_actions: int = 4) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    generator = torch.Generator().manual_seed(0)

    def normal(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=generator, dtype=torch.float64)

    logits, values = 2.0 * normal(num, num_actions), normal(num)
    actions = torch.randint(0, num_actions, (num,), generator=generator)
    return logits.requires_grad_(), values.requires_grad_(), actions, 2.0 * normal(num)


def test_by_hand() -> None:
    # Row 0: uniform over 3, advantage 2. Row 1: policy (1/2, 1/4, 1/4), action 1, advantage -1.
    loss = a2c_loss(
        torch.tensor([[0.0, 0.0, 0.0], [math.log(2.0), 0.0, 0.0]]),
        torch.tensor([1.0, 5.0]),
        torch.tensor([2, 1]),
        torch.tensor([3.0, 4.0]),
        value_coefficient=0.5,
        entropy_coefficient=0.1,
    )
    policy = -(2.0 * math.log(1 / 3) + -1.0 * math.log(1 / 4)) / 2
    entropy = (math.log(3) + (0.5 * math.log(2) + 0.5 * math.log(4))) / 2
    assert loss.policy.item() == pytest.approx(policy)
    assert loss.value.item() == pytest.approx((4 + 1) / 2)
    assert loss.entropy.item() == pytest.approx(entropy)
    assert loss.total.item() == pytest.approx(policy + 0.5 * 2.5 - 0.1 * entropy)
    assert all(part.ndim == 0 for part in loss)


@pytest.mark.parametrize("num_actions", [1, 6, 18])
def test_the_entropy_of_a_uniform_policy_is_log_a(num_actions: int) -> None:
    loss = a2c_loss(
        torch.full((5, num_actions), 3.7),
        torch.zeros(5),
        torch.zeros(5, dtype=torch.int64),
        torch.zeros(5),
        value_coefficient=1.0,
        entropy_coefficient=1.0,
    )
    assert loss.entropy.item() == pytest.approx(math.log(num_actions), abs=1e-6)
    assert loss.total.item() == pytest.approx(-math.log(num_actions), abs=1e-6)


def test_a_certain_policy_has_no_entropy_and_no_nan() -> None:
    logits = torch.tensor([[500.0, -500.0]], requires_grad=True)
    loss = a2c_loss(
        logits,
        torch.zeros(1),
        torch.tensor([0]),
        torch.ones(1),
        value_coefficient=0.5,
        entropy_coefficient=0.01,
    )
    assert loss.entropy.item() == 0
    (grad,) = torch.autograd.grad(loss.total, logits)
    assert torch.equal(grad, torch.zeros(1, 2))


def test_gradients_in_closed_form() -> None:
    logits, values, actions, returns = random_batch()
    c_v, c_e = 0.5, 0.3
    loss = a2c_loss(
        logits, values, actions, returns, value_coefficient=c_v, entropy_coefficient=c_e
    )
    grad_logits, grad_values = torch.autograd.grad(loss.total, (logits, values))
    num = len(values)
    with torch.no_grad():
        policy = torch.softmax(logits, dim=-1)
        taken = torch.nn.functional.one_hot(actions, logits.shape[1])
        advantage = (returns - values).unsqueeze(1)
        entropy = -(policy * policy.log()).sum(1, keepdim=True)
        expected = (advantage * (policy - taken) + c_e * policy * (policy.log() + entropy)) / num
    assert torch.allclose(grad_logits, expected, atol=1e-12)
    # From the squared error alone: the policy's term takes the advantage as a constant.
    assert torch.allclose(grad_values, 2 * c_v * (values - returns) / num, atol=1e-12)


def test_who_receives_gradient() -> None:
    logits, values, actions, returns = random_batch()
    returns.requires_grad_()
    loss = a2c_loss(
        logits, values, actions, returns, value_coefficient=0.5, entropy_coefficient=0.1
    )
    receives = {
        name: [
            grad is not None and bool(grad.any())
            for grad in torch.autograd.grad(
                part, (logits, values, returns), retain_graph=True, allow_unused=True
            )
        ]
        for name, part in loss._asdict().items()
    }
    assert receives == {
        "total": [True, True, False],
        "policy": [True, False, False],
        "value": [False, True, False],
        "entropy": [True, False, False],
    }


def test_given_advantages_weigh_the_policy_alone_and_receive_no_gradient() -> None:
    logits, values, actions, returns = random_batch()
    own = (returns - values).detach().requires_grad_()
    moved = values + 1.0
    loss = a2c_loss(
        logits,
        moved,
        actions,
        returns,
        value_coefficient=0.5,
        entropy_coefficient=0.1,
        advantages=own,
    )
    at_own = a2c_loss(
        logits, values, actions, returns, value_coefficient=0.5, entropy_coefficient=0.1
    )
    assert loss.policy.item() == pytest.approx(at_own.policy.item(), abs=1e-12)
    assert loss.value.item() == pytest.approx((returns - values - 1).square().mean().item())
    assert torch.autograd.grad(loss.total, own, allow_unused=True)[0] is None


def test_a_batch_repeated_has_the_same_loss() -> None:
    batch = random_batch()
    twice = [torch.cat([part, part]) for part in batch]
    once = a2c_loss(*batch, value_coefficient=0.5, entropy_coefficient=0.1)
    again = a2c_loss(*twice, value_coefficient=0.5, entropy_coefficient=0.1)
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
