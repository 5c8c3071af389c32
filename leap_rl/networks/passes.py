"""Forward and backward passes of an actor-critic network over an unroll.

On-policy, the pass that chooses an action is the pass that is differentiated: each agent step is
computed once, what its gradient needs is kept, and the backward pass takes the gradients with
respect to the outputs of the whole unroll.

T: agent steps in an unroll. B: observations in an agent step. A: actions. H, W, C: an observation's
height, width and channels.
"""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from typing import Literal, NamedTuple, Protocol

import torch
from torch import Tensor

from leap_rl.networks.actor_critic import ActorCritic
from leap_rl.networks.parameters import FlatParameters

Precision = Literal["float32", "bfloat16"]
"""Of weights and activations within the network; parameters and what comes out are float32."""


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


class AutogradPasses:
    """Any network, differentiated by autograd, on the network's own device.

    Args:
        network: Its parameters are views of `flat`.
        flat: The parameters and their gradient.
        precision: bfloat16 casts as torch's autocast does.
    """

    def __init__(
        self, network: ActorCritic, flat: FlatParameters, *, precision: Precision = "float32"
    ) -> None:
        self._network = network
        self._flat = flat
        self._precision = precision
        self._unroll: list[Outputs] = []

    @torch.no_grad()
    def forward(self, observations: Tensor) -> Outputs:
        """Go through the network once, keeping nothing."""
        return self._outputs(observations)

    def record(self, observations: Tensor) -> Outputs:
        """Go through the network and keep its graph."""
        outputs = self._outputs(observations)
        self._unroll.append(outputs)
        return Outputs(outputs.logits.detach(), outputs.values.detach())

    def backward(self, logits_grad: Tensor, values_grad: Tensor, *, forget: bool = True) -> None:
        """Overwrite the flat gradient with that of the recorded unroll."""
        self._flat.zero_grad()
        outputs = [tensor for pair in self._unroll for tensor in pair]
        gradients = [
            tensor for pair in zip(logits_grad, values_grad, strict=True) for tensor in pair
        ]
        torch.autograd.backward(outputs, gradients, retain_graph=not forget)
        if forget:
            self.forget()

    def forget(self) -> None:
        """Drop what was recorded, if anything was."""
        self._unroll = []

    def refresh(self) -> None:
        """Nothing: the network's parameters are the flat vector's own elements."""

    def _outputs(self, observations: Tensor) -> Outputs:
        device = self._flat.vector.device
        casting: AbstractContextManager[object] = nullcontext()
        if self._precision == "bfloat16":
            casting = torch.autocast(device.type, dtype=torch.bfloat16)
        with casting:
            logits, values = self._network(observations.to(device, non_blocking=True))
        return Outputs(logits.float(), values.float())


def make_passes(network: ActorCritic, flat: FlatParameters, *, precision: Precision) -> Passes:
    """Return the fastest passes that there are for the network and its device."""
    from leap_rl.networks.direct import DirectPasses, is_plain
    from leap_rl.networks.small import SmallPasses, is_small

    if flat.vector.device.type == "cpu" and is_plain(network):
        if precision == "float32" and is_small(network):
            return SmallPasses(network)
        return DirectPasses(network, dtype=getattr(torch, precision))
    return AutogradPasses(network, flat, precision=precision)
