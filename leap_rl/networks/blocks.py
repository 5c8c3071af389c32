"""Pixels laid out by blocks, so that a strided convolution becomes a dense one.

A convolution of kernel k and stride s, s dividing k, is one of kernel k/s and stride 1 over blocks
of s × s pixels, each block's pixels laid out as s²·C channels ("space to depth").

B: observations. H, W, C: height, width and channels. s: the stride.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import torch
from torch import Tensor

from leap_rl.core.kernels import kernel
from leap_rl.networks.passes import through_relu


def space_to_depth(observations: Tensor, stride: int) -> Tensor:
    """Lay uint8 [B, H, W, C] out by blocks of s × s pixels: [B, H/s, W/s, s²·C].

    Rows and columns that fill no block are left out, as a strided convolution leaves them out.
    """
    batch, height, width, channels = observations.shape
    rows, columns = height // stride, width // stride
    pixels = observations[:, : rows * stride].reshape(batch * rows, stride * width * channels)
    blocks = torch.empty((batch * rows, columns * stride * stride * channels), dtype=torch.uint8)
    unit = 4 if (stride * channels) % 4 == 0 and (width * channels) % 4 == 0 else 1
    if unit == 4:
        pixels, blocks = pixels.view(torch.int32), blocks.view(torch.int32)
    order = _order_of_blocks(stride, width * channels // unit, columns, stride * channels // unit)
    _permute_rows(pixels.numpy(), order.numpy(), blocks.numpy())
    return blocks.view(torch.uint8).view(batch, rows, columns, -1)


@cache
def _order_of_blocks(stride: int, line: int, columns: int, run: int) -> Tensor:
    """Return the order in which a row of blocks reads the units of the lines that it covers.

    These are `stride` lines of `line` units; each of its `columns` blocks takes a `run` of each.
    """
    lines = torch.arange(stride * line, dtype=torch.int32).view(stride, line)
    return lines[:, : columns * run].reshape(stride, columns, run).transpose(0, 1).flatten()


@kernel
def _permute_rows(rows: Any, order: Any, permuted: Any) -> None:
    """Copy rows [R, n] to [R, m], the elements of each in the order [m] of their indices."""
    for r in range(permuted.shape[0]):
        source, target = rows[r], permuted[r]
        for i in range(order.shape[0]):
            target[i] = source[order[i]]


def _split(pixels: Tensor, stride: int) -> Tensor:
    """View [B, H, W, C] by blocks: [B, H/s, W/s, s, s, C]."""
    batch, height, width, channels = pixels.shape
    rows, columns = height // stride, width // stride
    split = pixels[:, : rows * stride, : columns * stride]
    return split.view(batch, rows, stride, columns, stride, channels).permute(0, 1, 3, 2, 4, 5)


def relu_by_block(outputs: Tensor, stride: int) -> Tensor:
    """Apply ReLU to [B, H, W, C] and lay it out by blocks, [B, H/s, W/s, s²·C], in one pass."""
    if stride == 1:
        return outputs.clamp_min_(0.0)
    split = _split(outputs, stride)
    blocks = torch.empty(split.shape, dtype=outputs.dtype)
    torch.clamp_min(split, 0.0, out=blocks)
    return blocks.flatten(3)


def through_relu_by_block(
    grad: Tensor, blocks: Tensor, stride: int, shape: tuple[int, int, int, int]
) -> Tensor:
    """Undo `relu_by_block`: the gradient, and the blocks, to that of its outputs [B, H, W, C]."""
    if stride == 1:
        return through_relu(grad, blocks)
    cropped = shape[1] % stride or shape[2] % stride
    outputs_grad = (torch.zeros if cropped else torch.empty)(shape, dtype=grad.dtype)
    split = _split(outputs_grad, stride)
    torch.ops.aten.threshold_backward.grad_input(
        grad.reshape(split.shape), blocks.view(split.shape), 0, grad_input=split
    )
    return outputs_grad
