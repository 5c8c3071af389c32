"""The choice among the passes of an actor-critic network."""

from __future__ import annotations

import torch

from leap_rl.compute.precision import Precision
from leap_rl.networks.actor_critic import ActorCritic
from leap_rl.networks.autograd import AutogradPasses
from leap_rl.networks.direct import DirectPasses, is_plain
from leap_rl.networks.parameters import FlatParameters
from leap_rl.networks.passes import Passes
from leap_rl.networks.small import SmallPasses, is_small


def make_passes(network: ActorCritic, flat: FlatParameters, *, precision: Precision) -> Passes:
    """Return the fastest passes that there are for the network and its device."""
    if flat.vector.device.type == "cpu" and is_plain(network):
        if precision == "float32" and is_small(network):
            return SmallPasses(network)
        return DirectPasses(network, dtype=getattr(torch, precision))
    return AutogradPasses(network, flat, precision=precision)
