"""Policies: a softmax over discrete actions, normal distributions over continuous ones.

`Categorical` has one logit an action. With logits z, so that log π = z − log Σ exp z, the gradients
of one agent step's terms, weighed by the advantage w, are

    ∂(−log π(a)·w)/∂z = w·(π − 1[a])     ∂H/∂z = −π·(log π + H)

`Gaussian` has a normal distribution of each of an action's numbers. Means μ and log standard
deviations s come from the linear head, both of the observation, as RLlib has them. (Mnih et al.
2016, on continuous control, have one variance for all numbers, by a softplus.) With
z = (a − μ)/exp s and sums over an action's numbers

    log π(a) = −Σ(z²/2 + s + log(2π)/2)     H = Σ(s + log(2πe)/2)

the gradients are

    ∂(−log π(a)·w)/∂μ = −w·z/exp s     ∂(−log π(a)·w)/∂s = w·(1 − z²)     ∂H/∂s = 1

N: agent steps in the batch. A: actions. D: numbers of an action.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Final

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
def _write_softmax_losses(
    logits: Any, actions: Any, advantages: Any, weights: Any, sums: Any, logits_grad: Any
) -> None:
    of_policy, of_entropy = weights
    count = len(actions)
    for n in range(count):
        log_sum = _log_sum(logits[n])
        entropy = _entropy(logits[n], log_sum)
        sums[0] -= (logits[n, actions[n]] - log_sum) * advantages[n]
        sums[1] += entropy
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
        actions = torch.empty(logits.shape[0], dtype=torch.int64)
        drawn = torch.rand(logits.shape[0], dtype=torch.float64, generator=generator)
        _draw(logits.contiguous().numpy(), drawn.numpy(), actions.numpy())
        return actions

    def mode(self, logits: Tensor) -> Tensor:
        return logits.argmax(-1)

    write_losses = staticmethod(_write_softmax_losses)


_HALF_LOG_2PI: Final = 0.5 * math.log(2.0 * math.pi)


@kernel
def _write_normal_losses(
    logits: Any, actions: Any, advantages: Any, weights: Any, sums: Any, logits_grad: Any
) -> None:
    of_policy, of_entropy = weights
    count, size = actions.shape
    for n in range(count):
        log_policy, entropy = 0.0, 0.0
        for d in range(size):
            mean, log_std = 1.0 * logits[n, d], 1.0 * logits[n, size + d]
            z = (actions[n, d] - mean) * math.exp(-log_std)
            log_policy -= 0.5 * z * z + log_std + _HALF_LOG_2PI
            entropy += log_std + _HALF_LOG_2PI + 0.5
            by_mean = -advantages[n] * z * math.exp(-log_std)
            by_log_std = advantages[n] * (1.0 - z * z)
            logits_grad[n, d] = of_policy * by_mean / count
            logits_grad[n, size + d] = (of_policy * by_log_std + of_entropy) / count
        sums[0] -= log_policy * advantages[n]
        sums[1] += entropy


@dataclass(frozen=True, slots=True)
class Gaussian:
    """An action of D = `size` numbers; logits are D means, then D log standard deviations."""

    size: int

    @property
    def num_logits(self) -> int:
        return 2 * self.size

    def sample(self, logits: Tensor, generator: torch.Generator) -> Tensor:
        """Draw one action for each row of `logits`, float32 [N, 2·D]; float32 [N, D].

        D numbers for each row are drawn from the generator. Where a row is not finite, an action's
        number is 0: the loss will not be finite either.
        """
        means, log_stds = logits.chunk(2, dim=-1)
        drawn = torch.randn(means.shape, generator=generator)
        return torch.nan_to_num(means + log_stds.exp() * drawn, posinf=0.0, neginf=0.0)

    def mode(self, logits: Tensor) -> Tensor:
        return logits[..., : self.size]

    write_losses = staticmethod(_write_normal_losses)
