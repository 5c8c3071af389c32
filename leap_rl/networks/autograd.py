"""Any actor-critic network differentiated by autograd, and the choice of the fastest passes."""

from __future__ import annotations

import torch
from torch import Tensor

from leap_rl.core.determinism import AgentPrecision, Precision
from leap_rl.networks.actor_critic import ActorCritic, ForwardBackward, Outputs
from leap_rl.networks.compiled_conv_cpu import CompiledConvCpu
from leap_rl.networks.compiled_mlp_cpu import CompiledMlpCpu
from leap_rl.networks.dense_conv_cpu import DenseConvCpu, is_plain
from leap_rl.networks.parameters import FlatParameters
from leap_rl.networks.sparse_conv_cpu import SparseConvCpu, is_small


class AutogradForwardBackward(ForwardBackward):
    """Any network, on its own device; each agent step keeps its outputs with their graph.

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


def make_forward_backward(
    network: ActorCritic, flat: FlatParameters, *, precision: AgentPrecision
) -> ForwardBackward:
    """Return the fastest implementation for the network and its device.

    float32_compiled is for networks of the encoders `minatar` and `mlp`, on the CPU.
    """
    if precision == "float32_compiled":
        of_images = "encoder.conv1.weight" in {leaf.name for leaf in flat.layout.leaves}
        return CompiledConvCpu(flat) if of_images else CompiledMlpCpu(flat)
    if flat.vector.device.type == "cpu" and is_plain(network):
        if precision == "float32" and is_small(network):
            return SparseConvCpu(network)
        return DenseConvCpu(network, dtype=getattr(torch, precision))
    return AutogradForwardBackward(network, flat, precision=precision)
