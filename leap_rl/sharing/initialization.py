"""Initializations on disk: shared parameters by name, as safetensors."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping

import numpy as np
import torch
from safetensors import SafetensorError
from safetensors.numpy import load, save
from torch import Tensor

from leap_rl.core.urls import redacted
from leap_rl.networks.parameters import Layout
from leap_rl.storage.object_store import read_file


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


def mixed(learned: Tensor, random: Tensor, share: float) -> Tensor:
    """Return share · learned + (1 − share) · random, float32 [P], computed in float64.

    Ash and Adams 2020, "On Warm-Starting Neural Network Training", shrink and perturb: learned
    parameters are shrunk, and random ones of the same network are their noise.
    """
    return (share * learned.double() + (1.0 - share) * random.double()).float()


def read_initialization(url: str, layout: Layout) -> tuple[Tensor, str]:
    """Return the shared parameters, float32 [P], in a file or at a URL, and its SHA-256.

    ValueError: there is none, or parameters are not those of ``layout``, or not finite.
    """
    try:
        data = read_file(url)
    except (OSError, ValueError, ImportError) as error:
        reason = redacted(" ".join(str(error).split()))
        raise ValueError(f"cannot be read: {reason}") from None
    vector = layout.pack(load_tensors(data))
    if not torch.isfinite(vector).all():
        raise ValueError("holds NaN or infinity")
    return vector, hashlib.sha256(data).hexdigest()
