"""Forward and backward passes of an actor-critic network over an unroll.

On-policy, the pass that chooses an action is the pass that is differentiated: each agent step is
computed once, what its gradient needs is kept, and the backward pass takes the gradients with
respect to the outputs of the whole unroll.

T: agent steps in an unroll. B: observations in an agent step. L: logits of a policy. H, W, C: an
observation's height, width and channels.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, NamedTuple

import torch
from torch import Tensor


class Outputs(NamedTuple):
    """What the network says of the observations of agent steps; without gradient."""

    logits: Tensor
    """float32 [..., L], of the policy π: one an action, or as a distribution has them."""
    values: Tensor
    """float32 [...], V."""


class ForwardBackward(ABC):
    """The passes of one network, whose parameters must not change within an unroll."""

    def __init__(self) -> None:
        self._unroll: list[Any] = []  # what each agent step leaves for the backward pass

    @torch.no_grad()
    def forward(self, observations: Tensor) -> Outputs:
        """Go through the network once; images uint8 [B, H, W, C] or vectors float32 [B, n]."""
        return self._forward(observations)[0]

    def record(self, observations: Tensor) -> Outputs:
        """Go through the network and keep what the gradient needs, the observations too."""
        outputs, step = self._forward(observations)
        self._unroll.append(step)
        return outputs

    def backward(self, logits_grad: Tensor, values_grad: Tensor, *, forget: bool = True) -> None:
        """Overwrite the flat gradient with that of the recorded unroll.

        Args:
            logits_grad: float32 [T, B, L], gradient of a loss with respect to the logits.
            values_grad: float32 [T, B], with respect to the values.
            forget: Whether the unroll is done with; otherwise it can be differentiated again.
        """
        self._backward(logits_grad, values_grad, forget)
        if forget:
            self.forget()

    def forget(self) -> None:
        """Drop what was recorded, if anything was."""
        self._unroll = []

    def refresh(self) -> None:  # noqa: B027 - autograd's need not
        """Take over parameters that have changed."""

    @abstractmethod
    def _forward(self, observations: Tensor) -> tuple[Outputs, Any]:
        """Return the outputs, without gradient, and what an agent step leaves."""

    @abstractmethod
    def _backward(self, logits_grad: Tensor, values_grad: Tensor, forget: bool) -> None: ...


def heads_gradient(logits_grad: Tensor, values_grad: Tensor) -> Tensor:
    """Return both gradients as one, [N, L + 1], N = T·B."""
    return torch.cat([logits_grad, values_grad.unsqueeze(2)], dim=2).flatten(0, 1)


def through_relu(grad: Tensor, outputs: Tensor) -> Tensor:
    """Zero the gradient where the ReLU's output is zero, in place."""
    torch.ops.aten.threshold_backward.grad_input(grad, outputs, 0, grad_input=grad)
    return grad
