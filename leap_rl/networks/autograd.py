"""Passes of any actor-critic network, differentiated by autograd; and the fastest ones of each."""

from __future__ import annotations

import torch
from torch import Tensor

from leap_rl.core.processor import Precision
from leap_rl.networks.actor_critic import ActorCritic
from leap_rl.networks.direct import DirectPasses, is_plain
from leap_rl.networks.parameters import FlatParameters
from leap_rl.networks.passes import Outputs, Passes
from leap_rl.networks.small import SmallPasses, is_small


class AutogradPasses(Passes):
    """Any network, on its own device; it keeps an agent step's outputs with their graph.

    The network's parameters are views of `flat`. bfloat16 casts as torch's autocast does.
    """

    def __init__(
        self, network: ActorCritic, flat: FlatParameters, *, precision: Precision = "float32"
    ) -> None:
        super().__init__()
        self._network = network
        self._flat = flat
        self._casts = precision == "bfloat16"

    def _forward(self, observations: Tensor) -> tuple[Outputs, Outputs]:
        device = self._flat.vector.device
        with torch.autocast(device.type, dtype=torch.bfloat16, enabled=self._casts):
            logits, values = self._network(observations.to(device, non_blocking=True))
        outputs = Outputs(logits.float(), values.float())
        return Outputs(*(each.detach() for each in outputs)), outputs

    def _backward(self, logits_grad: Tensor, values_grad: Tensor, forget: bool) -> None:
        self._flat.zero_grad()
        outputs = [tensor for pair in self._unroll for tensor in pair]
        gradients = [
            tensor for pair in zip(logits_grad, values_grad, strict=True) for tensor in pair
        ]
        torch.autograd.backward(outputs, gradients, retain_graph=not forget)


def make_passes(network: ActorCritic, flat: FlatParameters, *, precision: Precision) -> Passes:
    """Return the fastest passes that there are for the network and its device."""
    if flat.vector.device.type == "cpu" and is_plain(network):
        if precision == "float32" and is_small(network):
            return SmallPasses(network)
        return DirectPasses(network, dtype=getattr(torch, precision))
    return AutogradPasses(network, flat, precision=precision)
