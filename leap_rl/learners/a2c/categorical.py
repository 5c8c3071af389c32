"""Policies over discrete actions: a softmax of one logit an action.

With logits z, so that log π = z − log Σ exp z, the gradients of one agent step's terms, weighed by
the advantage w, are

    ∂(−log π(a)·w)/∂z = w·(π − 1[a])     ∂H/∂z = −π·(log π + H)

N: agent steps in the batch. A: actions.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from leap_rl.core.kernels import kernel


@kernel
def _log_sum(logits: Any) -> float:
    """Return log Σ exp z of a row of logits [A]."""
    largest = -math.inf
    for a in range(len(logits)):
        # NaN becomes the largest, and stays.
        largest = largest if logits[a] <= largest else 1.0 * logits[a]
    total = 0.0
    for a in range(len(logits)):
        total += math.exp(logits[a] - largest)
    return largest + math.log(total)


@kernel
def _entropy(logits: Any, log_sum: float) -> float:
    """Return H(π) of a row of logits [A], of which `_log_sum` is given."""
    entropy = 0.0
    for a in range(len(logits)):
        entropy -= math.exp(logits[a] - log_sum) * (logits[a] - log_sum)
    return entropy


@kernel
def _add_losses(logits: Any, actions: Any, advantages: Any, sums: Any) -> None:
    for n in range(len(actions)):
        log_sum = _log_sum(logits[n])
        sums[0] -= (logits[n, actions[n]] - log_sum) * advantages[n]
        sums[1] += _entropy(logits[n], log_sum)


@kernel
def _write_gradient(
    logits: Any, actions: Any, advantages: Any, weights: Any, logits_grad: Any
) -> None:
    of_policy, of_entropy = weights
    count = len(actions)
    for n in range(count):
        log_sum = _log_sum(logits[n])
        entropy = _entropy(logits[n], log_sum)
        for a in range(logits.shape[1]):
            log_policy = logits[n, a] - log_sum
            policy = math.exp(log_policy)
            taken = 1.0 if a == actions[n] else 0.0
            through_policy = advantages[n] * (policy - taken)
            through_entropy = -policy * (log_policy + entropy)
            weighted = of_policy * through_policy + of_entropy * through_entropy
            logits_grad[n, a] = weighted / count


@kernel
def _draw(logits: Any, drawn: Any, actions: Any) -> None:
    """Turn numbers in [0, 1) [N] into actions [N], each by its row's policy."""
    for n in range(len(drawn)):
        log_sum = _log_sum(logits[n])
        left = drawn[n]
        actions[n] = logits.shape[1] - 1
        for a in range(logits.shape[1]):
            left -= math.exp(logits[n, a] - log_sum)
            if left < 0:
                actions[n] = a
                break


@dataclass(frozen=True, slots=True)
class Categorical:
    """One of `num_actions` actions, A; see `loss.Distribution`."""

    num_actions: int

    @property
    def num_logits(self) -> int:
        return self.num_actions

    def sample(self, logits: Tensor, generator: torch.Generator) -> Tensor:
        """Draw one action for each row of `logits`, float32 [N, A]; int64 [N].

        One number for each row is drawn from the generator. Where a row is not finite, its action
        is arbitrary: the loss will not be finite either.
        """
        actions = torch.empty(len(logits), dtype=torch.int64)
        drawn = torch.rand(len(logits), dtype=torch.float64, generator=generator)
        _draw(logits.contiguous().numpy(), drawn.numpy(), actions.numpy())
        return actions

    def mode(self, logits: Tensor) -> Tensor:
        return logits.argmax(-1)

    add_losses = staticmethod(_add_losses)
    write_gradient = staticmethod(_write_gradient)
