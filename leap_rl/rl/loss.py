"""The loss of advantage actor-critic (Mnih et al. 2016, section 4 and supplement), as a mean.

N: agent steps in the batch, the unroll times the environments. A: actions.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from leap_rl.rl.config import PathLoss


class A2CLoss(NamedTuple):
    """The loss and its parts, each 0-d and a mean over the batch."""

    total: Tensor
    """policy + c_v·value − c_e·entropy, what the updates descend."""
    policy: Tensor
    """−mean(log π(a)·(R − V)), the advantage R − V taken as a constant."""
    value: Tensor
    """mean((R − V)²)."""
    entropy: Tensor
    """Mean entropy of the policy, in nats."""

    def path_loss(self, name: PathLoss) -> Tensor:
        """Return the part that is the f of the gradient path."""
        parts: dict[PathLoss, Tensor] = {
            "total": self.total,
            "policy": self.policy,
            "value": self.value,
        }
        return parts[name]


def a2c_loss(
    logits: Tensor,
    values: Tensor,
    actions: Tensor,
    returns: Tensor,
    *,
    value_coefficient: float,
    entropy_coefficient: float,
    advantages: Tensor | None = None,
) -> A2CLoss:
    """Return the loss of a batch of agent steps.

    Args:
        logits: [N, A], of the policy π.
        values: [N], V.
        actions: int64 [N], those taken.
        returns: [N], R. Without gradient.
        value_coefficient: c_v.
        entropy_coefficient: c_e.
        advantages: [N], what weighs the policy's term; R − V if not given. Never differentiated.
            To follow the function that an update descends to other parameters, give those of the
            parameters that acted: they are its constants, as the returns are.
    """
    log_policy = F.log_softmax(logits, dim=-1)
    log_taken = log_policy.gather(-1, actions.unsqueeze(-1)).squeeze(-1)
    errors = returns.detach() - values
    weights = errors if advantages is None else advantages
    policy = -(log_taken * weights.detach()).mean()
    value = errors.square().mean()
    entropy = -(log_policy.exp() * log_policy).sum(-1).mean()
    total = policy + value_coefficient * value - entropy_coefficient * entropy
    return A2CLoss(total=total, policy=policy, value=value, entropy=entropy)


def sample_actions(logits: Tensor, generator: torch.Generator) -> Tensor:
    """Draw one action for each row of `logits` [N, A] from the policy; int64 [N]."""
    policy = torch.softmax(logits.detach(), dim=-1)
    return torch.multinomial(policy, 1, generator=generator).squeeze(-1)
