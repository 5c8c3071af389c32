"""The loss of advantage actor-critic, term by term in torch, for autograd to differentiate."""

from __future__ import annotations

import torch

from leap_rl.rl.loss import A2CLoss, Predictions, Targets


def literal_loss(
    predictions: Predictions,
    targets: Targets,
    *,
    value_coefficient: float,
    entropy_coefficient: float,
) -> A2CLoss:
    logits, values = predictions.logits.flatten(0, -2), predictions.values.flatten()
    actions, returns, advantages = (part.flatten() for part in targets)
    policy = torch.softmax(logits, dim=-1)
    log_policy = torch.log_softmax(logits, dim=-1)
    log_taken = log_policy[torch.arange(len(actions)), actions]
    parts = {
        "policy": -(log_taken * advantages.detach()).mean(),
        "value": ((returns.detach() - values) ** 2).mean(),
        "entropy": -(policy * log_policy).sum(1).mean(),
    }
    total = (
        parts["policy"]
        + value_coefficient * parts["value"]
        - entropy_coefficient * parts["entropy"]
    )
    return A2CLoss(total=total, **parts)
