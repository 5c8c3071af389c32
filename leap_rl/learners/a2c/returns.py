"""n-step returns of an unroll, the targets of actor-critic (Mnih et al. 2016, section 4).

T: unroll, agent steps of each environment between two updates. B: environments.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from leap_rl.core.kernels import kernel


def n_step_returns(
    rewards: Tensor,
    *,
    terminated: Tensor,
    truncated: Tensor,
    truncation_values: Tensor,
    bootstrap_values: Tensor,
    gamma: float,
) -> Tensor:
    """Return R_t = r_t + γ·next_t, where next_t is the return after agent step t.

    next_t is 0 if the episode terminated in step t. If it was cut off there, it is the value of
    that episode's own last observation, not of the new episode's first. Otherwise it is R_{t+1},
    and after the last row the value of the next observation.

    Example, γ = 0.5, one environment, truncated in its second step with the value 4 and
    bootstrapped with 8::

        rewards [1, 1, 1]  ->  returns [1 + 0.5·3, 1 + 0.5·4, 1 + 0.5·8] = [2.5, 3, 5]

    Args:
        rewards: [T, B], r_t; clipped already, if they are to be.
        terminated: bool [T, B], the episode ended in step t. Wins where both are true.
        truncated: bool [T, B], the episode was cut off in step t.
        truncation_values: [T, B], V of the cut-off episode's last observation; read only where
            `truncated` is true.
        bootstrap_values: [B], V of the observations after the last row.
        gamma: γ, the discount.

    Returns:
        [T, B].
    """
    returns = torch.empty_like(rewards)
    _add_up(
        rewards.numpy(),
        terminated.numpy(),
        truncated.numpy(),
        truncation_values.numpy(),
        bootstrap_values.contiguous().numpy(),
        gamma,
        returns.numpy(),
    )
    return returns


@kernel
def _add_up(
    rewards: Any,
    terminated: Any,
    truncated: Any,
    truncation_values: Any,
    bootstrap_values: Any,
    gamma: Any,
    returns: Any,
) -> None:
    """Write the returns [T, B], each environment's from its last agent step to its first."""
    for b in range(rewards.shape[1]):
        following = 1.0 * bootstrap_values[b]  # float64, rounded where it is written
        for t in range(rewards.shape[0] - 1, -1, -1):
            if terminated[t, b]:
                following = 0.0
            elif truncated[t, b]:
                following = 1.0 * truncation_values[t, b]
            following = rewards[t, b] + gamma * following
            returns[t, b] = following
