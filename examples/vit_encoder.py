"""An encoder of your own: a small vision transformer (Dosovitskiy et al. 2021).

    PYTHONPATH=examples leap-rl train --config minatar --trust_imports \\
        --agent.encoder vit_encoder:vit --agent.encoder_arguments '{"patch": 5}'

An encoder is a function or class that takes the observations' shape, and returns a torch module
from observations as the environments give them, uint8 [N, H, W, C] or float32 [N, L], to float32
features [N, F]. Its weights are those that its constructor draws.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn


class Block(nn.Module):
    """Self-attention and a perceptron of two layers, each after a LayerNorm."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv = nn.Linear(width, 3 * width)
        self.out = nn.Linear(width, width)
        self.perceptron = nn.Sequential(
            nn.Linear(width, 2 * width), nn.GELU(), nn.Linear(2 * width, width)
        )

    def forward(self, tokens: Tensor) -> Tensor:
        """Return tokens [N, T, width] for tokens [N, T, width]."""
        query, key, value = (
            part.unflatten(2, (self.heads, -1)).transpose(1, 2)
            for part in self.qkv(self.norm1(tokens)).chunk(3, dim=2)
        )
        seen = F.scaled_dot_product_attention(query, key, value)
        tokens = tokens + self.out(seen.transpose(1, 2).flatten(2))
        return tokens + self.perceptron(self.norm2(tokens))


class ViT(nn.Module):
    """Patches of an image as tokens; the features are the mean of the last ones."""

    def __init__(
        self, observation_shape: tuple[int, ...], patch: int, width: int, depth: int, heads: int
    ) -> None:
        super().__init__()
        height, width_of_image, channels = observation_shape
        tokens = (height // patch) * (width_of_image // patch)
        self.patches = nn.Conv2d(channels, width, patch, stride=patch)
        self.positions = nn.Parameter(0.02 * torch.randn(tokens, width))
        self.blocks = nn.Sequential(*(Block(width, heads) for _ in range(depth)))
        self.norm = nn.LayerNorm(width)

    def forward(self, observations: Tensor) -> Tensor:
        """Return features [N, width] of uint8 images [N, H, W, C]."""
        images = observations.permute(0, 3, 1, 2).float() / 255
        tokens = self.patches(images).flatten(2).transpose(1, 2) + self.positions
        return self.norm(self.blocks(tokens)).mean(1)


def vit(
    observation_shape: tuple[int, ...],
    *,
    patch: int = 5,
    width: int = 64,
    depth: int = 2,
    heads: int = 4,
) -> ViT:
    """Return a vision transformer for images of a shape (H, W, C)."""
    return ViT(observation_shape, patch, width, depth, heads)
