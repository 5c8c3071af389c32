from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from leap_rl.learners.a2c.returns import n_step_returns


def column(
    rewards: list[float],
    *,
    gamma: float,
    bootstrap: float,
    terminated: tuple[int, ...] = (),
    truncated: dict[int, float] | None = None,
) -> list[float]:
    """Returns of one environment; episode ends by row, with the value of the last observation."""
    num = len(rewards)
    cut = truncated or {}
    returns = n_step_returns(
        torch.tensor(rewards, dtype=torch.float32).unsqueeze(1),
        terminated=torch.tensor([[t in terminated] for t in range(num)]),
        truncated=torch.tensor([[t in cut] for t in range(num)]),
        # NaN where no episode was truncated: it must not be read, not even times zero.
        truncation_values=torch.tensor([[cut.get(t, torch.nan)] for t in range(num)]),
        bootstrap_values=torch.tensor([bootstrap]),
        gamma=gamma,
    )
    assert returns.shape == (num, 1)
    values: list[float] = returns[:, 0].tolist()
    return values


@pytest.mark.parametrize(
    ("rewards", "gamma", "bootstrap", "ends", "returns"),
    [
        # Without a discount weight a return is its reward; undiscounted; discounted.
        ([1, 2, 3], 0.0, 100, {}, [1, 2, 3]),
        ([1, 2, 3], 1.0, 10, {}, [16, 15, 13]),
        # 3 + 0.5·8 = 7; 2 + 0.5·7 = 5.5; 1 + 0.5·5.5 = 3.75
        ([1, 2, 3], 0.5, 8, {}, [3.75, 5.5, 7]),
        # Nothing follows a termination; a truncation bootstraps from its own last observation.
        ([1, 2, 3], 0.5, 8, {"terminated": (1,)}, [2, 2, 7]),
        ([1, 2, 3], 0.5, 8, {"truncated": {1: 20}}, [7, 12, 7]),
        # Both, from the back: 5 + 0.5·8 = 9; truncated 4 + 0.5·6 = 7; 3 + 0.5·7 = 6.5;
        # terminated 2; 1 + 0.5·2 = 2
        ([1, 2, 3, 4, 5], 0.5, 8, {"terminated": (1,), "truncated": {3: 6}}, [2, 2, 6.5, 7, 9]),
        # An end in the last row hides the bootstrap value.
        ([1, 2], 1.0, 1000, {"terminated": (1,)}, [3, 2]),
        ([1, 2], 1.0, 1000, {"truncated": {1: 30}}, [33, 32]),
        # A termination wins over a truncation in the same step.
        ([1, 2], 1.0, 7, {"terminated": (0,), "truncated": {0: 50}}, [1, 9]),
        # A NaN value of the next episode stays there.
        ([1, 2], 1.0, torch.nan, {"terminated": (1,)}, [3, 2]),
    ],
)
def test_by_hand(
    rewards: list[float], gamma: float, bootstrap: float, ends: Any, returns: list[float]
) -> None:
    assert column(rewards, gamma=gamma, bootstrap=bootstrap, **ends) == returns


def oracle(
    rewards: Tensor, term: Tensor, trunc: Tensor, cut: Tensor, boot: Tensor, gamma: float
) -> Tensor:
    """The sum written out from each start until an end, in float64."""
    steps, envs = rewards.shape
    returns = torch.zeros(steps, envs, dtype=torch.float64)
    for b in range(envs):
        for start in range(steps):
            total, discount = 0.0, 1.0
            for t in range(start, steps):
                total += discount * rewards[t, b].item()
                discount *= gamma
                if term[t, b]:
                    break
                if trunc[t, b]:
                    total += discount * cut[t, b].item()
                    break
            else:
                total += discount * boot[b].item()
            returns[start, b] = total
    return returns


@pytest.mark.parametrize("gamma", [0.0, 0.3, 0.99, 1.0])
def test_against_the_sums_written_out(gamma: float) -> None:
    generator = torch.Generator().manual_seed(0)
    shape = (7, 50)
    rewards, cut = (torch.randn(shape, generator=generator) for _ in range(2))
    term, trunc = (torch.rand(shape, generator=generator) < 0.2 for _ in range(2))
    boot = torch.randn(50, generator=generator)
    assert (term & trunc).any()
    assert (trunc[-1] & ~term[-1]).any()
    assert term[-1].any()
    returns = n_step_returns(
        rewards,
        terminated=term,
        truncated=trunc,
        truncation_values=cut,
        bootstrap_values=boot,
        gamma=gamma,
    )
    expected = oracle(rewards, term, trunc, cut, boot, gamma)
    assert torch.allclose(returns.double(), expected, rtol=1e-5, atol=1e-5)
