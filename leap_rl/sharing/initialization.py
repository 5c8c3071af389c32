"""Initializations on disk: shared parameters by name, as safetensors."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping

import numpy as np
import torch
from safetensors import SafetensorError
from safetensors.numpy import load, save
from torch import Tensor

from leap_rl.core.urls import redacted
from leap_rl.networks.parameters import Layout
from leap_rl.storage.object_store import read_file

_ENCODER, _POLICY = "encoder.", "policy.bias"
_HEADS = {"policy.weight", _POLICY, "value.weight", "value.bias"}
"""Names in a whole agent's parameters, see `networks.actor_critic.ActorCritic`."""
_STATISTICS = "observations."
"""What the names of `envs.normalized.STATISTICS` begin with; a trained agent's file has them."""


_OF_LIBRARIES = re.compile(r"(?:q_net\.|actor\.)?features_extractor\.encoder\.")
"""Where an agent of stable-baselines3 has our encoder."""
_LIBRARYS_OWN = ("features_extractor.", "mlp_extractor.", "q_net.", "actor.")
"""What the names of its own networks begin with."""


def save_tensors(tensors: Mapping[str, Tensor]) -> bytes:
    """Return tensors as the bytes of a safetensors file; equal tensors give equal bytes."""
    arrays = {name: np.array(tensor.numpy(), order="C") for name, tensor in tensors.items()}
    return bytes(save(arrays))


def load_tensors(data: bytes) -> dict[str, Tensor]:
    """Return the tensors in a safetensors file's bytes; ValueError if they are none of NumPy's."""
    try:
        arrays = load(data)
    except SafetensorError as error:
        raise ValueError(f"no safetensors file ({error})") from None
    except KeyError as error:
        raise ValueError(f"holds numbers of type {error.args[0]}; convert them to F32") from None
    return {name: torch.from_numpy(array.copy()) for name, array in arrays.items()}


def encoder_part(tensors: Mapping[str, Tensor]) -> Mapping[str, Tensor]:
    """Return the parameters of an agent's encoder, by their names in it; an encoder's own as is."""
    theirs = next(filter(None, map(_OF_LIBRARIES.match, tensors)), None)
    if not tensors.keys() >= _HEADS and theirs is None:
        return tensors
    prefix = _ENCODER if theirs is None else theirs.group()
    return _below(prefix, tensors)


def mixed(learned: Tensor, random: Tensor, share: float) -> Tensor:
    """Return share · learned + (1 − share) · random, float32 [P], computed in float64.

    Ash and Adams 2020, "On Warm-Starting Neural Network Training", shrink and perturb: learned
    parameters are shrunk, and random ones of the same network are their noise.
    """
    return (share * learned.double() + (1.0 - share) * random.double()).float()


def read_initialization(url: str, layout: Layout) -> tuple[Tensor, str]:
    """Return the shared parameters, float32 [P], in a file or at a URL, and its SHA-256.

    Of a whole agent's file an encoder's layout takes the encoder.

    ValueError: there is none, or parameters are not those of ``layout``, or not finite.
    """
    try:
        data = read_file(url)
    except (OSError, ValueError, ImportError) as error:
        reason = redacted(" ".join(str(error).split()))
        raise ValueError(f"cannot be read: {reason}") from None
    vector = layout.pack(_fitting(load_tensors(data), layout))
    if not torch.isfinite(vector).all():
        raise ValueError("holds NaN or infinity")
    return vector, hashlib.sha256(data).hexdigest()


def _below(prefix: str, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    return {
        name.removeprefix(prefix): tensor
        for name, tensor in tensors.items()
        if name.startswith(prefix)
    }


def _fitting(tensors: Mapping[str, Tensor], layout: Layout) -> Mapping[str, Tensor]:
    """Return a whole agent's parameters, or its encoder's, as the layout asks for."""
    shapes = {leaf.name: leaf.shape for leaf in layout.leaves}
    inner = _below(_ENCODER, tensors)
    if inner.keys() == shapes.keys():  # whatever the agent's other modules are called
        return inner
    if any(name.startswith(_LIBRARYS_OWN) for name in shapes):
        return {name: tensor for name, tensor in tensors.items() if name in shapes}
    if not shapes.keys() >= _HEADS:
        return encoder_part(tensors)
    if not tensors.keys() >= _HEADS:
        raise ValueError(
            "has no heads, and agent.share = agent starts whole agents; take agent.share = encoder"
        )
    if tensors[_POLICY].shape != shapes[_POLICY]:
        raise ValueError(
            f"is an agent whose policy has {tensors[_POLICY].numel()} outputs, and the actions of "
            f"these games take {shapes[_POLICY][0]}; agent.share = encoder takes its encoder alone"
        )
    return {name: part for name, part in tensors.items() if not name.startswith(_STATISTICS)}
