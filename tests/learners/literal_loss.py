"""The loss of advantage actor-critic, term by term in torch, for autograd to differentiate."""

from __future__ import annotations

import torch
from torch import Tensor

from leap_rl.learners.a2c.loss import A2CLoss, Targets
from leap_rl.networks.passes import Outputs


def literal_loss(
    predictions: Outputs,
    targets: Targets,
    *,
    value_coefficient: float,
    entropy_coefficient: float,
) -> A2CLoss:
    logits, values = predictions.logits.flatten(0, -2), predictions.values.flatten()
    returns, advantages = targets.returns.flatten(), targets.advantages.flatten()
    log_taken, entropies = (
        _gaussian(logits, targets.actions.flatten(0, -2).double())
        if targets.actions.is_floating_point()
        else _categorical(logits, targets.actions.flatten())
    )
    parts = {
        "policy": -(log_taken * advantages.detach()).mean(),
        "value": ((returns.detach() - values) ** 2).mean(),
        "entropy": entropies.mean(),
    }
    total = (
        parts["policy"]
        + value_coefficient * parts["value"]
        - entropy_coefficient * parts["entropy"]
    )
    return A2CLoss(total=total, **parts)


def _categorical(logits: Tensor, actions: Tensor) -> tuple[Tensor, Tensor]:
    """Return log π of the actions and the policies' entropies, [N]."""
    policy, log_policy = torch.softmax(logits, dim=-1), torch.log_softmax(logits, dim=-1)
    log_taken = log_policy[torch.arange(len(actions)), actions]
    return log_taken, -(policy * log_policy).sum(1)


def _gaussian(logits: Tensor, actions: Tensor) -> tuple[Tensor, Tensor]:
    """The same of actions [N, D]."""
    means, log_stds = logits.chunk(2, dim=-1)
    policy = torch.distributions.Normal(means, log_stds.exp())
    return policy.log_prob(actions).sum(1), policy.entropy().sum(1)
