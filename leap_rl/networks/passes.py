"""Forward and backward passes of an actor-critic network over an unroll.

On-policy, the pass that chooses an action is the pass that is differentiated: each agent step is
computed once, what its gradient needs is kept, and the backward pass takes the gradients with
respect to the outputs of the whole unroll.

T: agent steps in an unroll. B: observations in an agent step. A: actions. H, W, C: an observation's
height, width and channels.
"""

from __future__ import annotations

from typing import NamedTuple, Protocol

from torch import Tensor


class Outputs(NamedTuple):
    """What the network says of the observations of one agent step; without gradient."""

    logits: Tensor
    """float32 [B, A], of the policy."""
    values: Tensor
    """float32 [B]."""


class Passes(Protocol):
    """The passes of one network, whose parameters must not change within an unroll."""

    def forward(self, observations: Tensor) -> Outputs:
        """Go through the network once, keeping nothing; observations are uint8 [B, H, W, C]."""

    def record(self, observations: Tensor) -> Outputs:
        """Go through the network and keep what the gradient needs, the observations too."""

    def backward(self, logits_grad: Tensor, values_grad: Tensor, *, forget: bool = True) -> None:
        """Overwrite the flat gradient with that of the recorded unroll.

        Args:
            logits_grad: float32 [T, B, A], gradient of a loss with respect to the logits.
            values_grad: float32 [T, B], with respect to the values.
            forget: Whether the unroll is done with; otherwise it can be differentiated again.
        """

    def forget(self) -> None:
        """Drop what was recorded, if anything was."""

    def refresh(self) -> None:
        """Take over parameters that have changed."""
