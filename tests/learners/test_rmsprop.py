from __future__ import annotations

import math

import pytest
import torch
from torch import nn

from leap_rl.learners.a2c.rmsprop import RMSProp
from leap_rl.learners.config import RMSPropStart
from leap_rl.networks.parameters import flatten_parameters

RATES = {"lr": 0.01, "alpha": 0.9, "eps": 1e-3}
SHARED = 48


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(5, 8)  # 40 elements and 8 of them: 48, aligned
        self.second = nn.Linear(8, 3)


def gradients(size: int, steps: int) -> torch.Tensor:
    return torch.randn(steps, size, generator=torch.Generator().manual_seed(0))


@pytest.mark.parametrize("torch_ops", [False, True])
def test_it_is_torchs_own(torch_ops: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    flat = flatten_parameters(Net())
    theta = flat.vector.clone().requires_grad_()
    reference = torch.optim.RMSprop([theta], foreach=False, **RATES)
    optimizer = RMSProp(flat, **RATES)
    if torch_ops:  # what other devices than the CPU use
        monkeypatch.setattr(optimizer, "_step_compiled", optimizer._step_torch)
    for gradient in gradients(flat.layout.size, 5):
        flat.grad.copy_(gradient)
        theta.grad = gradient
        before = flat.vector.clone()
        length = optimizer.step(SHARED)
        reference.step()
        torch.testing.assert_close(flat.vector, theta.detach(), rtol=1e-6, atol=1e-7)
        moved = (flat.vector - before)[:SHARED].double().norm().item()
        assert length == pytest.approx(moved, rel=1e-9)
        assert torch.equal(flat.spare, before)
        assert torch.equal(flat.spare_grad, gradient)


@pytest.mark.parametrize("torch_ops", [False, True])
@pytest.mark.parametrize("start", ["one", "bias_corrected"])
def test_its_other_starts_written_out(
    start: RMSPropStart, torch_ops: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """TensorFlow's v = 1; Adam's v / (1 − αᵗ), Kingma and Ba 2015, algorithm 1."""
    lr, alpha, eps = RATES.values()
    flat = flatten_parameters(Net())
    optimizer = RMSProp(flat, start=start, **RATES)
    if torch_ops:
        monkeypatch.setattr(optimizer, "_step_compiled", optimizer._step_torch)
    theta = flat.vector.double()
    v = torch.full_like(theta, 1.0 if start == "one" else 0.0)
    for t, gradient in enumerate(gradients(flat.layout.size, 5), start=1):
        flat.grad.copy_(gradient)
        optimizer.step(SHARED)
        v = alpha * v + (1 - alpha) * gradient.double() ** 2
        corrected = v / (1 - alpha**t) if start == "bias_corrected" else v
        theta = theta - lr * gradient.double() / (corrected.sqrt() + eps)
        torch.testing.assert_close(flat.vector.double(), theta, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize(("start", "rates"), [("zero", 10.0), ("bias_corrected", 1.0)])
def test_how_long_its_first_step_is(start: RMSPropStart, rates: float) -> None:
    """In every coordinate lr / √(1 − α), ten rates with α = 0.99; with the correction it is one."""
    flat = flatten_parameters(Net())
    flat.grad.copy_(gradients(flat.layout.size, 1)[0])
    optimizer = RMSProp(flat, lr=1e-3, alpha=0.99, eps=1e-9, start=start)
    assert optimizer.step(SHARED) == pytest.approx(rates * 1e-3 * math.sqrt(SHARED), rel=1e-3)


def test_a_step_that_is_not_finite_has_no_finite_length() -> None:
    for bad in (math.nan, math.inf):
        flat = flatten_parameters(Net())
        flat.grad.fill_(1.0)
        flat.grad[3] = bad
        assert not math.isfinite(RMSProp(flat, **RATES).step(SHARED))


@pytest.mark.parametrize("place", [3, SHARED + 3])
@pytest.mark.parametrize("torch_ops", [False, True])
def test_a_square_that_overflows_is_no_silent_standstill(
    torch_ops: bool, place: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    flat = flatten_parameters(Net())
    optimizer = RMSProp(flat, **RATES)
    if torch_ops:
        monkeypatch.setattr(optimizer, "_step_compiled", optimizer._step_torch)
    flat.grad.fill_(1.0)
    flat.grad[place] = 1e20  # finite, and so is the step; its square is not
    assert not math.isfinite(optimizer.step(SHARED))


def test_a_step_below_the_last_bit_has_no_length() -> None:
    flat = flatten_parameters(Net())
    flat.vector.fill_(1.0)
    flat.grad.fill_(1.0)
    optimizer = RMSProp(flat, lr=1e-9, alpha=0.0, eps=1e-3)
    assert optimizer.step(SHARED) == 0.0  # that of what moved, which is nothing


@pytest.mark.parametrize("start", ["zero", "one", "bias_corrected"])
def test_its_state_is_all_there_is(start: RMSPropStart) -> None:
    steps = gradients(flatten_parameters(Net()).layout.size, 4)
    torch.manual_seed(0)
    whole, parts = flatten_parameters(Net()), []
    before = whole.vector.clone()
    optimizer = RMSProp(whole, start=start, **RATES)
    state: dict[str, torch.Tensor] = {}
    for index, gradient in enumerate(steps):
        if index == 2:
            state, parts = optimizer.state_dict(), [whole.vector.clone()]
        whole.grad.copy_(gradient)
        optimizer.step(SHARED)
    assert not torch.equal(whole.vector, before)

    other = flatten_parameters(Net())
    other.vector.copy_(parts[0])
    resumed = RMSProp(other, start=start, **RATES)
    resumed.load_state_dict(state)
    state["mean_square"].zero_()  # was copied
    for gradient in steps[2:]:
        other.grad.copy_(gradient)
        resumed.step(SHARED)
    assert torch.equal(other.vector, whole.vector)
