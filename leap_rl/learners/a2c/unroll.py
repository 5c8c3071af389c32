"""The agent steps between two updates: observations, actions, rewards and ends of episodes.

T: unroll, agent steps. B: environments.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from leap_rl.learners.a2c.loss import Targets
from leap_rl.learners.a2c.returns import n_step_returns
from leap_rl.networks.actor_critic import Outputs


@dataclass(frozen=True)
class Batch:
    """The data of one update; observations are not copied."""

    observations: tuple[Tensor, ...]
    """T of uint8 [B, H, W, C], those acted on."""
    targets: Targets
    """Each [T, B], or [T, B, D] of continuous actions of D numbers."""


class Unroll:
    """Records agent steps, and turns them into predictions and targets."""

    def __init__(self) -> None:
        # Of each agent step, the arguments of `act` and of `record`.
        self._acted: list[tuple[Tensor, Outputs, Tensor]] = []
        self._outcomes: list[tuple[Tensor, Tensor, Tensor, Mapping[int, Tensor]]] = []

    def __len__(self) -> int:
        return len(self._acted)

    def act(self, observations: Tensor, predictions: Outputs, actions: Tensor) -> None:
        assert len(self._acted) == len(self._outcomes), "the last step was not recorded"
        self._acted.append((observations, predictions, actions))

    def record(
        self,
        rewards: Tensor,
        terminated: Tensor,
        truncated: Tensor,
        last_observations: Mapping[int, Tensor],
    ) -> None:
        assert len(self._acted) == len(self._outcomes) + 1, "nothing was acted"
        self._outcomes.append((rewards, terminated, truncated, last_observations))

    def finish(
        self,
        next_observations: Tensor,
        *,
        value_of: Callable[[Tensor], Tensor],
        reward_clip: float,
        gamma: float,
    ) -> tuple[Outputs, Batch]:
        """Return the predictions of the agent steps, [T, B, ...], and their batch.

        `value_of` gives the values [N] of observations [N, H, W, C], to bootstrap from: those of
        `next_observations` and the last ones of episodes that were cut off.
        """
        assert self._acted, "an unroll needs at least one agent step"
        assert len(self._acted) == len(self._outcomes), "the last step was not recorded"
        observations, predictions, actions = zip(*self._acted, strict=True)
        logits, values = (torch.stack(parts) for parts in zip(*predictions, strict=True))
        *ends, last_observations = zip(*self._outcomes, strict=True)
        rewards, terminated, truncated = (torch.stack(parts) for parts in ends)
        truncation_values = torch.zeros_like(rewards)
        cut_off = truncated & ~terminated
        last = [last_observations[t][b] for t, b in cut_off.nonzero().tolist()]
        if last:
            truncation_values[cut_off] = value_of(torch.stack(last))
        returns = n_step_returns(
            rewards.clamp(-reward_clip, reward_clip),
            terminated=terminated,
            truncated=truncated,
            truncation_values=truncation_values,
            bootstrap_values=value_of(next_observations),
            gamma=gamma,
        )
        targets = Targets(torch.stack(actions), returns=returns, advantages=returns - values)
        return Outputs(logits, values), Batch(observations, targets)
