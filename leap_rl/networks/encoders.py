"""Encoders, from screens or vectors to features, each named after its paper.

The tasks share the encoder, and meta-learning learns its initialization. `mnih2013` is the Leap
paper's (appendix "Experiment details: Atari"); the others are alternatives.

N: observations, H, W, C: their height, width and channels. L: length of a vector.
"""

from __future__ import annotations

import math
from collections import OrderedDict
from collections.abc import Callable
from functools import partial
from typing import TypeVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from leap_rl.core.choices import Share
from leap_rl.core.regular_file import LARGEST
from leap_rl.networks import custom
from leap_rl.networks.custom import ENCODERS, OF_IMAGES, OF_VECTORS, EncoderSpec
from leap_rl.networks.parameters import Layout

M = TypeVar("M", bound=nn.Module)


class Encoder(nn.Sequential):
    """A stack of named layers over uint8 screens, or over vectors.

    Takes uint8 [N, H, W, C] or [N, L] in 0..255, which it scales by 1/255, or float32 [N, L] as it
    is, and returns float32 [N, features]. Its parameters are zero until `initialize` draws them or
    a vector is copied in.
    """

    def __init__(self, layers: OrderedDict[str, nn.Module], *, features: int) -> None:
        super().__init__(layers)
        self.features = features

    def forward(self, observations: Tensor) -> Tensor:
        if observations.ndim == 2:
            hidden = observations.to(torch.float32)
            if observations.dtype == torch.uint8:
                hidden.div_(255.0)
        else:
            if observations.dtype != torch.uint8:
                raise ValueError(
                    f"observations of {observations.dtype}: images must be uint8 in 0..255, which "
                    "the encoder scales itself"
                )
            # A view: memory stays channels last, which is faster.
            hidden = observations.permute(0, 3, 1, 2).to(torch.float32).div_(255.0)
        for layer in self:
            hidden = layer(hidden)
        return hidden


class _Flatten(nn.Module):
    """[N, C, H, W] to [N, H·W·C]: a view of activations whose channels come last in memory."""

    def forward(self, inputs: Tensor) -> Tensor:
        return inputs.permute(0, 2, 3, 1).flatten(1)


class _Residual(nn.Module):
    """Espeholt et al. 2018, figure 3: x + conv(relu(conv(relu(x))))."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(channels, channels, 3, padding=1)
        self.conv2 = nn.Conv2d(channels, channels, 3, padding=1)

    def forward(self, inputs: Tensor) -> Tensor:
        hidden = self.conv1(F.relu(inputs))
        outputs: Tensor = inputs + self.conv2(F.relu(hidden))
        return outputs


def _plain(
    convolutions: tuple[tuple[int, int, int], ...],
    features: int,
    observation_shape: tuple[int, int, int],
) -> Encoder:
    """Stack convolutions (channels, kernel, stride) and one linear layer, a ReLU after each."""
    height, width, channels = observation_shape
    layers: OrderedDict[str, nn.Module] = OrderedDict()
    for i, (outputs, kernel, stride) in enumerate(convolutions, start=1):
        height, width = ((size - kernel) // stride + 1 for size in (height, width))
        layers[f"conv{i}"] = nn.Conv2d(channels, outputs, kernel, stride)
        layers[f"relu{i}"] = nn.ReLU()
        channels = outputs
    layers["flatten"] = _Flatten()
    layers["linear"] = nn.Linear(height * width * channels, features)
    layers["relu"] = nn.ReLU()
    return Encoder(layers, features=features)


def _impala(observation_shape: tuple[int, int, int]) -> Encoder:
    """Espeholt et al. 2018, figure 3 right, without its LSTM and its language input."""
    height, width, channels = observation_shape
    layers: OrderedDict[str, nn.Module] = OrderedDict()
    for i, outputs in enumerate((16, 32, 32), start=1):
        layers[f"conv{i}"] = nn.Conv2d(channels, outputs, 3, padding=1)
        layers[f"pool{i}"] = nn.MaxPool2d(3, stride=2, padding=1)
        layers[f"residual{i}a"] = _Residual(outputs)
        layers[f"residual{i}b"] = _Residual(outputs)
        height, width, channels = (height + 1) // 2, (width + 1) // 2, outputs
    layers["relu_convolutions"] = nn.ReLU()
    layers["flatten"] = _Flatten()
    layers["linear"] = nn.Linear(height * width * channels, 256)
    layers["relu"] = nn.ReLU()
    return Encoder(layers, features=256)


def _mlp(length: int) -> Encoder:
    """Schulman et al. 2017 (PPO), section 6.1: two hidden layers of 64 units, tanh."""
    layers: OrderedDict[str, nn.Module] = OrderedDict()
    for i, inputs in enumerate((length, 64), start=1):
        layers[f"linear{i}"] = nn.Linear(inputs, 64)
        layers[f"tanh{i}"] = nn.Tanh()
    return Encoder(layers, features=64)


# Name -> convolutions (channels, kernel, stride) and features.
_PLAIN: dict[str, tuple[tuple[tuple[int, int, int], ...], int]] = {
    "mnih2013": (((16, 8, 4), (32, 4, 2)), 256),  # Mnih et al. 2013, section 4.1
    "nature": (((32, 8, 4), (64, 4, 2), (64, 3, 1)), 512),  # Mnih et al. 2015, methods
    "minatar": (((16, 3, 1),), 128),  # Young and Tian 2019, section 3, for 10 × 10 cells
}

LAST_LAYER = "linear"
"""The name of the linear layer that follows the convolutions of every encoder of images."""


def make_encoder(encoder: str | EncoderSpec, observation_shape: tuple[int, ...]) -> nn.Module:
    """Return an encoder for observations of shape (H, W, C) or (L,), to load parameters into.

    Those of leap_rl are an `Encoder` whose parameters are zero; `random_encoder` draws weights. The
    global random stream is left alone. ValueError: there is no such encoder, or the observations
    are too small for it, or of another kind.
    """
    spec = EncoderSpec(name=encoder) if isinstance(encoder, str) else encoder
    if spec.is_custom:
        return custom.build(spec, observation_shape)
    name = spec.name
    if name not in ENCODERS:
        raise ValueError(f"agent.encoder = {name!r}: must be one of {', '.join(ENCODERS)}")
    if (name == OF_VECTORS) != (len(observation_shape) == 1):
        others = ", ".join(OF_IMAGES) if name == OF_VECTORS else OF_VECTORS
        raise ValueError(
            f"agent.encoder = {name}: takes {'vectors' if name == OF_VECTORS else 'images'}, and "
            f"observations have the shape {list(observation_shape)}; take {others}"
        )
    if name == OF_VECTORS:
        (length,) = observation_shape
        return blank(lambda: _mlp(length))
    least = least_size(name)
    height, width, channels = observation_shape
    if min(height, width) < least or channels < 1:
        raise ValueError(
            f"observation shape {tuple(observation_shape)}: the encoder {name!r} needs a height "
            f"and width of at least {least} and a channel; use larger observations or another "
            "encoder"
        )
    build = _impala if name == "impala" else partial(_plain, *_PLAIN[name])
    return blank(lambda: build((height, width, channels)))


def random_encoder(
    encoder: str | EncoderSpec,
    observation_shape: tuple[int, ...],
    generator: torch.Generator,
    *,
    gain: float | None,
) -> nn.Module:
    """Return an encoder as `make_encoder` does, its weights drawn; a custom one draws its own."""
    spec = EncoderSpec(name=encoder) if isinstance(encoder, str) else encoder
    if spec.is_custom:
        return custom.draw(spec, observation_shape, generator)
    module = make_encoder(spec, observation_shape)
    initialize(module, generator, gain=gain)
    return module


def features_of(
    encoder: str | EncoderSpec, module: nn.Module, observation_shape: tuple[int, ...]
) -> int:
    """Return the width of an encoder's features; ValueError if a custom one is no encoder."""
    if isinstance(module, Encoder):
        return module.features
    spec = EncoderSpec(name=encoder) if isinstance(encoder, str) else encoder
    return custom.features_of(spec, module, observation_shape)


def shared_part(layout: Layout, share: Share) -> Layout:
    """Return the layout of the shared parameters, of an encoder's or a whole agent's layout.

    The agent's is asked for where agents are shared. ValueError: an encoder lacks convolutions.
    """
    if share != "convolutions":
        return layout
    if not any(leaf.name.startswith(f"{LAST_LAYER}.") for leaf in layout.leaves):
        raise ValueError(
            f"agent.share = {share}: the encoder {OF_VECTORS} of vectors has no convolutions; take "
            "agent.share = encoder"
        )
    return layout.before(LAST_LAYER)


def least_size(name: str) -> int:
    """Return the least height and width of images that an encoder takes."""
    convolutions, _ = _PLAIN.get(name, ((), 0))
    size = 1  # of the last convolution's outputs
    for _, kernel, stride in reversed(convolutions):
        size = (size - 1) * stride + kernel
    return size


def blank(build: Callable[[], M]) -> M:
    """Return the module that `build` makes, all of its parameters zero.

    Torch's layers draw their first values from the global random stream when they are made; on the
    meta device they do not. ValueError: no file could hold its parameters.
    """
    with torch.device("meta"):
        module = build()
    size = sum(parameter.nbytes for parameter in module.parameters())
    if size > LARGEST:  # as of a stranger's observations, before memory is taken
        raise ValueError(f"its parameters have {size:,} bytes, and may have {LARGEST:,}")
    module.to_empty(device="cpu")
    for parameter in module.parameters():
        nn.init.zeros_(parameter)
    return module


def initialize(module: nn.Module, generator: torch.Generator, *, gain: float | None = None) -> None:
    """Draw every weight, uniformly and in layer order; the same bits on every CPU.

    These are of convolutions and linear layers; normalizations scale by 1 and shift by 0. With a
    gain weights get a deviation of gain / √inputs, biases are zero; √2 keeps the size of
    activations through ReLUs (He et al. 2015, eq. 10). Without one weights and biases lie within
    ±1/√inputs, torch's default and that of Mnih et al.
    """
    for layer in module.modules():
        if isinstance(layer, nn.Conv2d | nn.Linear):
            bound = (1.0 if gain is None else gain * math.sqrt(3.0)) / math.sqrt(
                layer.weight[0].numel()
            )
            nn.init.uniform_(layer.weight, -bound, bound, generator=generator)
            if layer.bias is None:
                continue
            if gain is None:
                nn.init.uniform_(layer.bias, -bound, bound, generator=generator)
            else:
                nn.init.zeros_(layer.bias)
        elif isinstance(layer, nn.BatchNorm2d):
            nn.init.ones_(layer.weight)
            nn.init.zeros_(layer.bias)
