"""The loss of advantage actor-critic (Mnih et al. 2016, section 4 and supplement), as a mean.

    policy  = −mean(log π(a)·(R − V))       value = mean((R − V)²)       entropy = mean(H(π))

The advantages R − V that weigh the policy's term are constants, as the returns R are. With logits
z, so that log π = z − log Σ exp z, the gradients of one agent step's terms are

    ∂(−log π(a)·w)/∂z = w·(π − 1[a])     ∂(R − V)²/∂V = 2·(V − R)     ∂H/∂z = −π·(log π + H)

They are written out, in compiled loops: a batch of 80 agent steps costs autograd a hundred calls.

N: agent steps in the batch, the unroll times the environments. A: actions.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import torch
from torch import Tensor

from leap_rl.compute.kernels import kernel
from leap_rl.rl.config import PathLoss


class A2CLoss(NamedTuple):
    """The loss and its parts, each float64, 0-d, without gradient, and a mean over the batch."""

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
        part: Tensor = getattr(self, name)
        return part


class Predictions(NamedTuple):
    """What the network says of the batch, on the CPU and without gradient."""

    logits: Tensor
    """float32 [..., A], of the policy π."""
    values: Tensor
    """float32 [...], V."""


class Targets(NamedTuple):
    """What the loss measures the predictions by, on the CPU; its constants."""

    actions: Tensor
    """int64 [...], those taken."""
    returns: Tensor
    """float32 [...], R, bootstrapped from the values at the parameters that acted."""
    advantages: Tensor
    """float32 [...], R − V at the parameters that acted."""


class Weights(NamedTuple):
    """How much each part of a loss counts."""

    policy: float = 0.0
    """1 in the total."""
    value: float = 0.0
    """c_v in the total."""
    entropy: float = 0.0
    """−c_e in the total."""


def a2c_loss(predictions: Predictions, targets: Targets, total: Weights) -> A2CLoss:
    """Return the loss of a batch of agent steps, its parts weighted as given in the total."""
    sums = torch.zeros(3, dtype=torch.float64)
    _add_losses(*_arrays(predictions, targets), sums.numpy())
    parts = sums.div_(predictions.values.numel()).unbind()
    policy, value, entropy = (weight * part for weight, part in zip(total, parts, strict=True))
    return A2CLoss(policy + value + entropy, *parts)


def a2c_gradient(predictions: Predictions, targets: Targets, weights: Weights) -> Predictions:
    """Return the gradient of the weighted sum of the loss's parts by the predictions."""
    gradient = Predictions(*(torch.empty(part.shape) for part in predictions))
    _write_gradient(
        *_arrays(predictions, targets),
        tuple(weights),
        gradient.logits.flatten(0, -2).numpy(),
        gradient.values.view(-1).numpy(),
    )
    return gradient


def sample_actions(logits: Tensor, generator: torch.Generator) -> Tensor:
    """Draw one action for each row of `logits`, float32 [N, A], from the policy; int64 [N].

    One number for each row is drawn from the generator. A row that is not finite has no policy; its
    action is any: whoever computes the loss finds it.
    """
    actions = torch.empty(len(logits), dtype=torch.int64)
    drawn = torch.rand(len(logits), dtype=torch.float64, generator=generator)
    _draw(logits.contiguous().numpy(), drawn.numpy(), actions.numpy())
    return actions


def _arrays(predictions: Predictions, targets: Targets) -> tuple[Any, Any, Any, Any, Any]:
    """Return logits [N, A], values, actions, returns and advantages [N], contiguous."""
    logits = predictions.logits.contiguous().flatten(0, -2)
    values, actions, returns, advantages = (
        vector.contiguous().view(-1).numpy() for vector in (predictions.values, *targets)
    )
    return logits.numpy(), values, actions, returns, advantages


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
def _add_losses(
    logits: Any, values: Any, actions: Any, returns: Any, advantages: Any, sums: Any
) -> None:
    """Add each agent step's terms of the policy, the values and the entropy to the sums [3]."""
    for n in range(len(values)):
        log_sum = _log_sum(logits[n])
        error = 1.0 * returns[n] - values[n]
        sums[0] -= (logits[n, actions[n]] - log_sum) * advantages[n]
        sums[1] += error * error
        sums[2] += _entropy(logits[n], log_sum)


@kernel
def _write_gradient(
    logits: Any,
    values: Any,
    actions: Any,
    returns: Any,
    advantages: Any,
    weights: Any,
    logits_grad: Any,
    values_grad: Any,
) -> None:
    """Write the gradients of the terms of `_add_losses`, weighted by three, over N."""
    of_policy, of_value, of_entropy = weights
    count = len(values)
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
        values_grad[n] = of_value * 2.0 * (1.0 * values[n] - returns[n]) / count


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
