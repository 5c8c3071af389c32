"""The outer step against the optimizers' formulas written out."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from leap_rl.meta import NonFiniteError, OuterStep

P = 23


def make_contributions(*, batch_size: int, seed: int = 0) -> list[Tensor]:
    generator = torch.Generator().manual_seed(seed)
    return [torch.randn(P, generator=generator) for _ in range(batch_size)]


def make_theta0() -> Tensor:
    return torch.randn(P, generator=torch.Generator().manual_seed(99))


def test_sgd_steps_by_the_rate_times_the_mean():
    theta0, contributions = make_theta0(), make_contributions(batch_size=5)
    outer = OuterStep(theta0, optimizer="sgd", meta_lr=0.25)
    result = outer.step(contributions)
    for j in range(P):
        mean = math.fsum(float(c[j]) for c in contributions) / 5
        assert float(result.mean[j]) == pytest.approx(mean, rel=1e-6)
        assert float(result.theta[j]) == pytest.approx(float(theta0[j]) - 0.25 * mean, rel=1e-6)
    assert result.mean_norm == pytest.approx(math.hypot(*result.mean.tolist()))
    assert result.step_norm == pytest.approx(0.25 * result.mean_norm, rel=1e-5)
    assert result.theta.dtype == result.mean.dtype == torch.float32


def test_adam_is_the_published_algorithm():
    """Kingma & Ba, algorithm 1, one parameter at a time in float64."""
    theta0, meta_lr, beta1, beta2, epsilon = make_theta0(), 1e-2, 0.9, 0.999, 1e-8
    outer = OuterStep(theta0, optimizer="adam", meta_lr=meta_lr)
    theta, m, v = theta0.tolist(), [0.0] * P, [0.0] * P
    for t in range(1, 6):
        contributions = make_contributions(batch_size=3, seed=t)
        result = outer.step(contributions)
        for j in range(P):
            g = math.fsum(float(c[j]) for c in contributions) / 3
            m[j] = beta1 * m[j] + (1 - beta1) * g
            v[j] = beta2 * v[j] + (1 - beta2) * g * g
            m_hat, v_hat = m[j] / (1 - beta1**t), v[j] / (1 - beta2**t)
            theta[j] -= meta_lr * m_hat / (math.sqrt(v_hat) + epsilon)
        assert result.theta.tolist() == pytest.approx(theta, abs=1e-6)


@pytest.mark.parametrize(
    ("name", "reference"), [("adam", torch.optim.Adam), ("sgd", torch.optim.SGD)]
)
def test_each_step_has_the_bits_of_torchs_optimizer(name, reference):
    size = 1003  # not a multiple of a vector register
    theta = torch.randn(size, generator=torch.Generator().manual_seed(99))
    outer = OuterStep(theta, optimizer=name, meta_lr=0.01)
    optimizer = reference([theta], lr=0.01, foreach=False, fused=False)
    for seed in range(20):
        generator = torch.Generator().manual_seed(seed)
        theta.grad = 10.0 ** (seed - 10) * torch.randn(size, generator=generator)
        optimizer.step()
        assert torch.equal(outer.step([theta.grad]).theta, theta)
    for key, value in outer.state_dict().items():
        assert torch.equal(value, optimizer.state[theta][key])


def test_the_mean_is_summed_in_float64_in_slot_order():
    """Terms in which float32 loses bits, and in which even float64 depends on the order."""
    columns = [(1.0, 2.0**-24, 2.0**-24, 0.0), (1e20, 1.0, -1e20, 1.0), (1.0, 1e20, -1e20, 1.0)]
    contributions = [torch.tensor(row) for row in zip(*columns, strict=True)]
    outer = OuterStep(torch.zeros(3), optimizer="sgd", meta_lr=1.0)

    mean = outer.step(contributions).mean

    # Out of order the last two would be 0, 0.25 or 0.5; in float32 the first would be 0.25.
    assert mean.tolist() == [0.25 * (1 + 2.0**-23), 0.25, 0.25]


@pytest.mark.parametrize("optimizer", ["adam", "sgd"])
@pytest.mark.parametrize("at", [0, 3])
def test_a_restored_state_steps_to_the_same_bits(optimizer, at):
    straight = OuterStep(make_theta0(), optimizer=optimizer, meta_lr=0.1)
    theta = make_theta0()
    for s in range(at):
        theta = straight.step(make_contributions(batch_size=2, seed=s)).theta
    state = straight.state_dict()
    assert all(type(value) is Tensor for value in state.values())
    resumed = OuterStep(theta, optimizer=optimizer, meta_lr=0.1)
    for s in range(at, at + 3):
        expected = straight.step(make_contributions(batch_size=2, seed=s))
        if s == at:  # the state was a copy: the step just taken is not in it
            resumed.load_state_dict(state)
        result = resumed.step(make_contributions(batch_size=2, seed=s))
        assert torch.equal(result.theta, expected.theta)
        assert torch.equal(result.mean, expected.mean)


def test_results_are_the_caller_s_own():
    theta0 = make_theta0()
    outer, twin = (OuterStep(theta0, optimizer="adam", meta_lr=0.1) for _ in range(2))
    for s in range(3):
        contributions = make_contributions(batch_size=2, seed=s)
        kept = twin.step(contributions)
        result = outer.step(contributions)
        assert torch.equal(result.theta, kept.theta)
        assert torch.equal(outer.theta, kept.theta)
        outer.theta.zero_()
        result.theta.zero_()
        result.mean.zero_()
        theta0.zero_()


def test_what_cannot_be_averaged_is_refused_and_changes_nothing():
    outer, twin = (OuterStep(make_theta0(), optimizer="adam", meta_lr=0.1) for _ in range(2))
    contributions = make_contributions(batch_size=3)
    with pytest.raises(ValueError, match="at least one"):
        outer.step([])
    with pytest.raises(ValueError, match=r"contributions\[1\]"):
        outer.step([contributions[0], torch.zeros(P + 1)])
    with pytest.raises(ValueError, match="float64"):
        outer.step([contributions[0].double()])
    for bad in (math.nan, math.inf):
        broken = contributions[2].clone()
        broken[4] = bad
        with pytest.raises(NonFiniteError, match=r"slots \[2\]"):
            outer.step([contributions[0], contributions[1], broken])
    assert torch.equal(outer.step(contributions).theta, twin.step(contributions).theta)


@pytest.mark.parametrize("optimizer", ["adam", "sgd"])
def test_a_step_that_overflows_changes_nothing(optimizer):
    """Neither the initialization nor Adam's averages and its count of steps."""
    theta0 = torch.full((P,), 3.3e38)
    outer, twin = (OuterStep(theta0, optimizer=optimizer, meta_lr=3e37) for _ in range(2))
    before = outer.state_dict()
    with pytest.raises(NonFiniteError, match="lower meta_lr"):
        outer.step([torch.full((P,), -10.0)])
    assert torch.equal(outer.theta, theta0)
    state = outer.state_dict()
    assert state.keys() == before.keys()
    assert all(torch.equal(state[name], before[name]) for name in state)
    twin_result = twin.step([torch.full((P,), 1e-2)])
    assert torch.equal(outer.step([torch.full((P,), 1e-2)]).theta, twin_result.theta)


def test_states_and_settings_that_do_not_fit_are_refused():
    adam = OuterStep(make_theta0(), optimizer="adam", meta_lr=0.1)
    sgd = OuterStep(make_theta0(), optimizer="sgd", meta_lr=0.1)
    sgd.step(make_contributions(batch_size=1))
    assert sgd.state_dict() == {}
    assert set(adam.state_dict()) == {"step", "exp_avg", "exp_avg_sq"}
    with pytest.raises(ValueError, match="exp_avg"):
        adam.load_state_dict(sgd.state_dict())
    with pytest.raises(ValueError, match="exp_avg"):
        adam.load_state_dict(OuterStep(torch.zeros(2), optimizer="adam", meta_lr=1).state_dict())
    with pytest.raises(ValueError, match="optimizer = 'lion'"):
        OuterStep(make_theta0(), optimizer="lion", meta_lr=0.1)
    for meta_lr in (0.0, -1.0, math.nan, math.inf):
        with pytest.raises(ValueError, match="meta_lr"):
            OuterStep(make_theta0(), optimizer="sgd", meta_lr=meta_lr)
    with pytest.raises(ValueError, match="theta0"):
        OuterStep(make_theta0().double(), optimizer="sgd", meta_lr=0.1)
    with pytest.raises(NonFiniteError, match="theta0"):
        OuterStep(torch.tensor([math.nan]), optimizer="sgd", meta_lr=0.1)
