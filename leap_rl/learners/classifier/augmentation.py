"""Random affine transformations of images.

The Leap paper's appendix "Experiment details: Omniglot": "random sampling a scaling factor between
[0.8, 1.2]", "random rotation between [0, 360)", and "randomly cropping the height and width by a
factor between [-0.2, 0.2]", which the authors' released code does by shifting.

N: images. H, W: height and width.
"""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor

LEAST_SCALE, LARGEST_SCALE = 0.8, 1.2
LARGEST_SHIFT = 0.2
"""Of the height or the width."""


def random_affine(images: Tensor, generator: torch.Generator) -> Tensor:
    """Turn, scale and shift each image by amounts of its own; see `transform`."""
    uniform = torch.rand(len(images), 4, generator=generator)
    return transform(
        images,
        angle=2.0 * math.pi * uniform[:, 0],
        scale=LEAST_SCALE + (LARGEST_SCALE - LEAST_SCALE) * uniform[:, 1],
        shift=LARGEST_SHIFT * (2.0 * uniform[:, 2:] - 1.0),
    )


def transform(images: Tensor, *, angle: Tensor, scale: Tensor, shift: Tensor) -> Tensor:
    """Turn images about their centers, scale them, then shift them; bilinear, 0 outside.

    A point x of the original goes to s·R(φ)·x + t, in pixels from the center.

    Args:
        images: float32 [N, 1, H, W], H equal to W.
        angle: φ in radians, [N]; with y downwards a positive one turns clockwise.
        scale: s, [N].
        shift: t over the width and the height, [N, 2]; x to the right, y downwards.
    """
    return F.grid_sample(
        images,
        F.affine_grid(
            inverse_matrices(angle, scale, shift), list(images.shape), align_corners=False
        ),
        mode="bilinear",
        padding_mode="zeros",
        align_corners=False,
    )


def inverse_matrices(angle: Tensor, scale: Tensor, shift: Tensor) -> Tensor:
    """Return [N, 2, 3]: for each point of the result, where it comes from.

    x = R(−φ)/s · (y − t), in torch's coordinates, in which a side goes from −1 to 1.
    """
    cosine, sine = angle.cos() / scale, angle.sin() / scale
    linear = torch.stack([cosine, sine, -sine, cosine], dim=1).view(-1, 2, 2)
    offset = -linear @ (2.0 * shift).unsqueeze(2)
    return torch.cat([linear, offset], dim=2)
