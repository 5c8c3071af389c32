"""Policies over continuous actions: a normal distribution of each of an action's numbers.

Means μ and log standard deviations s come from the linear head, both of the observation, as RLlib
has them. (Mnih et al. 2016, on continuous control, have one variance for all numbers, by a
softplus.) With z = (a − μ)/exp s and sums over an action's numbers

    log π(a) = −Σ(z²/2 + s + log(2π)/2)     H = Σ(s + log(2πe)/2)

the gradients of one agent step's terms, weighed by the advantage w, are

    ∂(−log π(a)·w)/∂μ = −w·z/exp s     ∂(−log π(a)·w)/∂s = w·(1 − z²)     ∂H/∂s = 1

N: agent steps in the batch. D: numbers of an action.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Final

import torch
from torch import Tensor

from leap_rl.core.kernels import kernel

_HALF_LOG_2PI: Final = 0.5 * math.log(2.0 * math.pi)


@kernel
def _add_losses(logits: Any, actions: Any, advantages: Any, sums: Any) -> None:
    size = actions.shape[1]
    for n in range(len(actions)):
        log_policy, entropy = 0.0, 0.0
        for d in range(size):
            mean, log_std = 1.0 * logits[n, d], 1.0 * logits[n, size + d]
            z = (actions[n, d] - mean) * math.exp(-log_std)
            log_policy -= 0.5 * z * z + log_std + _HALF_LOG_2PI
            entropy += log_std + _HALF_LOG_2PI + 0.5
        sums[0] -= log_policy * advantages[n]
        sums[1] += entropy


@kernel
def _write_gradient(
    logits: Any, actions: Any, advantages: Any, weights: Any, logits_grad: Any
) -> None:
    of_policy, of_entropy = weights
    count, size = actions.shape
    for n in range(count):
        for d in range(size):
            mean, log_std = 1.0 * logits[n, d], 1.0 * logits[n, size + d]
            z = (actions[n, d] - mean) * math.exp(-log_std)
            by_mean = -advantages[n] * z * math.exp(-log_std)
            by_log_std = advantages[n] * (1.0 - z * z)
            logits_grad[n, d] = of_policy * by_mean / count
            logits_grad[n, size + d] = (of_policy * by_log_std + of_entropy) / count


@dataclass(frozen=True, slots=True)
class Gaussian:
    """An action of `size` numbers, D; see `loss.Distribution`.

    A row of logits is D means and D log standard deviations, in this order.
    """

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

    add_losses = staticmethod(_add_losses)
    write_gradient = staticmethod(_write_gradient)
