from __future__ import annotations

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


def test_without_discount_weight_a_return_is_its_reward() -> None:
    assert column([1, 2, 3], gamma=0.0, bootstrap=100) == [1, 2, 3]


def test_undiscounted() -> None:
    assert column([1, 2, 3], gamma=1.0, bootstrap=10) == [16, 15, 13]


def test_discounted() -> None:
    # 3 + 0.5·8 = 7; 2 + 0.5·7 = 5.5; 1 + 0.5·5.5 = 3.75
    assert column([1, 2, 3], gamma=0.5, bootstrap=8) == [3.75, 5.5, 7]


def test_a_termination_leaves_nothing_to_come() -> None:
    assert column([1, 2, 3], gamma=0.5, bootstrap=8, terminated=(1,)) == [2, 2, 7]


def test_a_truncation_bootstraps_from_the_episodes_own_last_observation() -> None:
    assert column([1, 2, 3], gamma=0.5, bootstrap=8, truncated={1: 20}) == [7, 12, 7]


def test_both_ends_in_one_column() -> None:
    # From the back: 5 + 0.5·8 = 9; truncated 4 + 0.5·6 = 7; 3 + 0.5·7 = 6.5; terminated 2;
    # 1 + 0.5·2 = 2
    returns = column([1, 2, 3, 4, 5], gamma=0.5, bootstrap=8, terminated=(1,), truncated={3: 6})
    assert returns == [2, 2, 6.5, 7, 9]


def test_an_end_in_the_last_row_hides_the_bootstrap_value() -> None:
    assert column([1, 2], gamma=1.0, bootstrap=1000, terminated=(1,)) == [3, 2]
    assert column([1, 2], gamma=1.0, bootstrap=1000, truncated={1: 30}) == [33, 32]


def test_a_termination_wins_over_a_truncation_in_the_same_step() -> None:
    assert column([1, 2], gamma=1.0, bootstrap=7, terminated=(0,), truncated={0: 50}) == [1, 9]


def test_a_nan_value_of_the_next_episode_stays_there() -> None:
    assert column([1, 2], gamma=1.0, bootstrap=torch.nan, terminated=(1,)) == [3, 2]


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
