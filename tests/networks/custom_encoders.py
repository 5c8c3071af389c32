"""Encoders that are none of leap_rl's, good and bad, for tests; named `MODULE:name`."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

MODULE = __name__


class Plain(nn.Module):
    """Normalization, an embedding and a bare parameter, which draw themselves; no `features`."""

    def __init__(self, observation_shape: tuple[int, ...], width: int = 8) -> None:
        super().__init__()
        inputs = int(np.prod(observation_shape))
        self.linear = nn.Linear(inputs, width)
        self.norm = nn.LayerNorm(width)
        self.embedding = nn.Embedding(2, width)
        self.offset = nn.Parameter(torch.randn(width))

    def forward(self, observations: Tensor) -> Tensor:
        hidden = self.linear(observations.float().flatten(1) / 255)
        bright = (observations.float().flatten(1).mean(1) > 100).long()
        return self.norm(hidden).relu() + self.embedding(bright) + self.offset


class Tied(Plain):
    """The offset has a second name."""

    def __init__(self, observation_shape: tuple[int, ...]) -> None:
        super().__init__(observation_shape)
        self.shift = self.offset


class WithState(Plain):
    def __init__(self, observation_shape: tuple[int, ...]) -> None:
        super().__init__(observation_shape)
        self.norm = nn.BatchNorm1d(8)  # type: ignore[assignment]


class WithDropout(Plain):
    def forward(self, observations: Tensor) -> Tensor:
        return torch.dropout(super().forward(observations), 0.5, train=True)


class WithFlatOutput(Plain):
    def forward(self, observations: Tensor) -> Tensor:
        return super().forward(observations).flatten()


class WithHalfOutput(Plain):
    def forward(self, observations: Tensor) -> Tensor:
        return super().forward(observations).bfloat16()


class OfOthers(Plain):
    def forward(self, observations: Tensor) -> Tensor:
        return super().forward(observations[:, :1])


class OfVectors(nn.Linear):
    """Takes float32 alone."""

    def __init__(self, observation_shape: tuple[int, ...]) -> None:
        super().__init__(*observation_shape, 8)


class DrawnByNumpy(Plain):
    def __init__(self, observation_shape: tuple[int, ...]) -> None:
        super().__init__(observation_shape)
        with torch.no_grad():
            self.offset.copy_(torch.from_numpy(np.random.normal(size=8)))


def double(observation_shape: tuple[int, ...]) -> nn.Module:
    return Plain(observation_shape).double()


def nothing(observation_shape: tuple[int, ...]) -> Any:
    return None


def without_parameters(observation_shape: tuple[int, ...]) -> nn.Module:
    return nn.Flatten()


no_function = 3
