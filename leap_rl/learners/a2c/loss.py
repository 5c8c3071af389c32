"""The loss of advantage actor-critic (Mnih et al. 2016, section 4 and supplement), as a mean.

    policy  = −mean(log π(a)·(R − V))       value = mean((R − V)²)       entropy = mean(H(π))

The advantages R − V that weigh the policy's term are constants, as the returns R are. The gradients
of one agent step's terms are ∂(R − V)²/∂V = 2·(V − R) and those of `distributions.py`. They are
written out, in compiled loops: a batch of 80 agent steps costs autograd a hundred calls.

N: agent steps in the batch, the unroll times the environments. L: logits, the numbers that make up
a policy: one an action, or a mean and a log standard deviation for each of an action's numbers.
"""

from __future__ import annotations

from typing import Any, NamedTuple, Protocol

import torch
from torch import Tensor

from leap_rl.core.kernels import kernel
from leap_rl.learners.config import PathLoss
from leap_rl.networks.actor_critic import Outputs


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
        part: Tensor = getattr(self, name)
        return part


class Distribution(Protocol):
    """What policies are: how actions are drawn from logits, and what they add to the loss."""

    @property
    def num_logits(self) -> int:
        """L."""

    def sample(self, logits: Tensor, generator: torch.Generator) -> Tensor:
        """Draw one action for each row of logits, float32 [N, L]."""

    def mode(self, logits: Tensor) -> Tensor:
        """Return the most probable action of each row of logits."""

    def write_losses(
        self,
        logits: Any,
        actions: Any,
        advantages: Any,
        weights: Any,
        sums: Any,
        logits_grad: Any,
    ) -> None:
        """Add the agent steps' terms of the policy and of the entropy to the sums [2].

        Write the gradient by the logits, [N, L], of the means of both, weighted by two numbers.
        """


class Targets(NamedTuple):
    """What the loss measures the predictions by, on the CPU; its constants."""

    actions: Tensor
    """Those taken: int64 [...], or float32 [..., D] of D numbers each."""
    returns: Tensor
    """float32 [...], R, bootstrapped from the values at the parameters that acted."""
    advantages: Tensor
    """float32 [...], R − V at the parameters that acted."""
    taken: Tensor | None = None
    """bool [...]: the actions that were taken; the loss is the mean over these. None: all."""


class Weights(NamedTuple):
    """How much each part of a loss counts."""

    policy: float = 0.0
    """1 in the total."""
    value: float = 0.0
    """c_v in the total."""
    entropy: float = 0.0
    """−c_e in the total."""


def a2c_loss(
    policies: Distribution, predictions: Outputs, targets: Targets, weights: Weights
) -> tuple[A2CLoss, Outputs]:
    """Return the loss of a batch of agent steps, its parts weighted as given in the total.

    With it comes the total's gradient by the predictions.
    """
    kept, of_kept = _only_taken(predictions, targets)
    logits, values, actions, returns, advantages = _arrays(kept, of_kept)
    gradient = Outputs(*(torch.empty(part.shape) for part in kept))
    logits_grad = gradient.logits.flatten(0, -2).numpy()
    sums = torch.zeros(3, dtype=torch.float64)
    # Of policy, value and entropy: the distribution adds to the first and the last.
    of_policies, of_values = sums.numpy()[::2], sums.numpy()[1:2]
    own = (weights.policy, weights.entropy)
    policies.write_losses(logits, actions, advantages, own, of_policies, logits_grad)
    _write_losses(values, returns, weights.value, of_values, gradient.values.view(-1).numpy())
    parts = sums.div_(len(values)).tolist()
    policy, value, entropy = (weight * part for weight, part in zip(weights, parts, strict=True))
    whole = torch.tensor([policy + value + entropy, *parts], dtype=torch.float64)
    loss = A2CLoss(*whole.unbind())
    if targets.taken is None:
        return loss, gradient
    spread = Outputs(*(torch.zeros(part.shape) for part in predictions))
    for part, rows in zip(spread, gradient, strict=True):
        part[targets.taken] = rows
    return loss, spread


def _only_taken(predictions: Outputs, targets: Targets) -> tuple[Outputs, Targets]:
    """Return those of the actions that were taken."""
    if targets.taken is None:
        return predictions, targets
    logits, values, *kept = (part[targets.taken] for part in (*predictions, *targets[:3]))
    return Outputs(logits, values), Targets(*kept)


def _arrays(predictions: Outputs, targets: Targets) -> tuple[Any, Any, Any, Any, Any]:
    logits = predictions.logits.contiguous().flatten(0, -2)
    actions = targets.actions.contiguous().flatten(0, targets.returns.dim() - 1)
    values, returns, advantages = (
        vector.contiguous().view(-1).numpy()
        for vector in (predictions.values, targets.returns, targets.advantages)
    )
    return logits.numpy(), values, actions.numpy(), returns, advantages


@kernel
def _write_losses(values: Any, returns: Any, weight: float, sums: Any, values_grad: Any) -> None:
    count = len(values)
    for n in range(count):
        error = 1.0 * returns[n] - values[n]
        sums[0] += error * error
        values_grad[n] = weight * 2.0 * (1.0 * values[n] - returns[n]) / count
