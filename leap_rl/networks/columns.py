"""The passes of a small network, one convolution over few cells, as products of matrices.

For 16 observations of 10 × 10 cells a library's convolution spends its time on being called. Here a
loop copies the k² · C pixels that each output sees to a row ("im2col"), and forward and backward
pass are one product each, in float32. All else is as in `direct`.

B: observations in an agent step. R: rows, outputs of the convolution over all of them. K: k² · C.
"""

from __future__ import annotations

from typing import Any, cast

import torch
from torch import Tensor, nn

from leap_rl.kernels import kernel
from leap_rl.networks.actor_critic import ActorCritic
from leap_rl.networks.direct import PIXEL_SCALE, DirectPasses, given, is_plain

LARGEST = 256
"""K up to which a copy of the pixels is cheaper than a library's call."""


def is_small(network: ActorCritic) -> bool:
    """Whether a network that is plain has a single convolution, of stride 1 over few pixels."""
    layers = [layer for layer in network.encoder if isinstance(layer, nn.Conv2d)]
    return (
        is_plain(network)
        and len(layers) == 1
        and layers[0].stride == (1, 1)
        and layers[0].weight[0].numel() <= LARGEST
    )


class ColumnPasses(DirectPasses):
    """The passes of a network that `is_small`, on the CPU.

    Args:
        network: Its parameters and gradients are in a flat vector.
        dtype: Of the linear layer's weights and activations: float32, bfloat16, or float64, in
            which the convolution is computed then too, for tests.
    """

    def __init__(self, network: ActorCritic, *, dtype: torch.dtype = torch.float32) -> None:
        assert is_small(network)
        self._layer = cast(nn.Conv2d, network.encoder.get_submodule("conv1"))
        super().__init__(network, dtype=dtype)

    def _refresh_convolutions(self) -> None:
        # [k, k, C, outputs] in memory: a row of pixels is [k, k, C].
        weight = self._layer.weight.permute(2, 3, 1, 0).flatten(0, 2)
        self._matrix = weight.to(self._head_dtype) * PIXEL_SCALE
        self._bias = given(self._layer.bias).to(self._head_dtype)

    def _convolve(self, observations: Tensor) -> tuple[list[Tensor], Tensor]:
        side, channels = self._layer.kernel_size[0], observations.shape[3]
        batch, height, width = (
            observations.shape[0],
            *(size - side + 1 for size in observations.shape[1:3]),
        )
        columns = torch.empty(
            (batch * height * width, side * side * channels), dtype=self._head_dtype
        )
        _copy_columns(observations.flatten(2).numpy(), side * channels, channels, columns.numpy())
        outputs = torch.addmm(self._bias, columns, self._matrix).clamp_min_(0.0)
        return [columns], outputs.view(batch, -1).to(self._dtype)

    def _convolutions_backward(self, steps: list[list[Tensor]], grad: Tensor) -> None:
        grad = grad.to(self._head_dtype).view(-1, len(self._bias))
        matrix_grad = torch.zeros_like(self._matrix)
        for (columns,), part in zip(steps, grad.chunk(len(steps)), strict=True):
            matrix_grad.addmm_(columns.t(), part)
        outputs, channels, side, _ = self._layer.weight.shape
        blocks = matrix_grad.mul_(PIXEL_SCALE).view(side, side, channels, outputs)
        given(self._layer.weight.grad).copy_(blocks.permute(3, 2, 0, 1))
        given(given(self._layer.bias).grad).copy_(grad.sum(0))


@kernel
def _copy_columns(lines: Any, run: int, step: int, columns: Any) -> None:
    """Copy the pixels that each output sees.

    Args:
        lines: uint8 [B, H, W · C].
        run: k · C, the pixels of one line that an output sees.
        step: C, from one output to the next.
        columns: float [R, k · run], written to.
    """
    lines_seen = columns.shape[1] // run
    row = 0
    for b in range(lines.shape[0]):
        for top in range(lines.shape[1] - lines_seen + 1):
            for left in range(0, lines.shape[2] - run + 1, step):
                target = columns[row]
                for i in range(lines_seen):
                    source = lines[b, top + i, left : left + run]
                    for m in range(run):
                        target[i * run + m] = source[m]
                row += 1
