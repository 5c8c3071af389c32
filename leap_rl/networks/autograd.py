"""Passes of any actor-critic network, differentiated by autograd."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext

import torch
from torch import Tensor

from leap_rl.compute.precision import Precision
from leap_rl.networks.actor_critic import ActorCritic
from leap_rl.networks.parameters import FlatParameters
from leap_rl.networks.passes import Outputs


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
