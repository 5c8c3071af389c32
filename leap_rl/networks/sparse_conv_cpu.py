"""Passes of a small network on a CPU: a convolution over sparse cells, a linear layer, the heads.

For 16 observations of 10 × 10 cells a library's convolution spends its time on call overhead. Most
cells of such a game are empty: the compiled loops here visit the others only. The linear layers
are matrix products in float32: at this size bfloat16 costs more than it saves, since its matrices
are packed again in each call.

T: agent steps in an unroll. B: observations in an agent step. N = T·B. L: logits of a policy. H, W,
C: an observation's height, width and channels. k: side of the convolution's kernel. O: its outputs.
R = (H - k + 1)·(W - k + 1)·O. J: features of the encoder.
"""

from __future__ import annotations

from typing import Any, NamedTuple, cast

import torch
from torch import Tensor, nn

from leap_rl.core.kernels import kernel
from leap_rl.networks.actor_critic import (
    ActorCritic,
    ForwardBackward,
    Outputs,
    heads_gradient,
    through_relu,
)
from leap_rl.networks.dense_conv_cpu import PIXEL_SCALE, is_plain, not_none

LARGEST = 8192
"""The largest R of a small network."""


def is_small(network: ActorCritic) -> bool:
    """Whether `SparseConvCpu` can compute a network, and is fast at it."""
    layers = [layer for layer in network.encoder.children() if isinstance(layer, nn.Conv2d)]
    return (
        is_plain(network)
        and len(layers) == 1
        and layers[0].stride == (1, 1)
        and cast(nn.Linear, network.encoder.get_submodule("linear")).in_features <= LARGEST
    )


class _Step(NamedTuple):
    """What the backward pass needs of one agent step."""

    observations: Tensor
    """uint8 [B, H, W, C]."""
    convolved: Tensor
    """[B, R], of the convolution, after its ReLU."""
    features: Tensor
    """[J, B], of the encoder."""


class SparseConvCpu(ForwardBackward):
    """The passes of a network that `is_small`, on the CPU.

    Activations of the linear layers are kept as [J, B]: all products then take the weights as they
    lie.

    The network's parameters and gradients are in a flat vector. Weights and activations have the
    `dtype`: float32, or float64 for tests.
    """

    def __init__(self, network: ActorCritic, *, dtype: torch.dtype = torch.float32) -> None:
        super().__init__()
        assert is_small(network)
        self._dtype = dtype
        self._convolution = cast(nn.Conv2d, network.encoder.get_submodule("conv1"))
        self._linear = cast(nn.Linear, network.encoder.get_submodule("linear"))
        self._policy, self._value = network.policy, network.value
        outputs, channels, side, _ = self._convolution.weight.shape
        # What a cell adds to a line of outputs is a run of numbers: [C, k, k, O], from the cell's
        # own column to the left.
        self._filters = torch.empty(channels, side, side, outputs, dtype=dtype)
        self._filters_by_run = self._filters.flatten(2).numpy()
        self.refresh()

    @torch.no_grad()
    def refresh(self) -> None:
        filters = self._convolution.weight.permute(1, 2, 3, 0)
        torch.mul(filters.flip(2), PIXEL_SCALE, out=self._filters)
        # What empty observations are convolved to.
        bias = not_none(self._convolution.bias).to(self._dtype)
        self._blank = bias.repeat(self._linear.in_features // len(bias)).numpy()
        self._weight = self._linear.weight.to(self._dtype)
        self._bias = self._linear.bias.to(self._dtype).unsqueeze(1)
        # Both heads are one matrix, [L + 1, J].
        self._heads = torch.cat([self._policy.weight, self._value.weight]).to(self._dtype)
        heads_bias = torch.cat([self._policy.bias, self._value.bias])
        self._heads_bias = heads_bias.to(self._dtype).unsqueeze(1)

    @torch.no_grad()
    def _forward(self, observations: Tensor) -> tuple[Outputs, _Step]:
        shape = self._convolved_shape(observations)
        convolved = torch.empty(shape, dtype=self._dtype)
        blank = self._blank.reshape(shape[1:])
        cell = torch.empty_like(self._filters[0]).flatten(1)
        _convolve(
            observations.numpy(), self._filters_by_run, blank, cell.numpy(), convolved.numpy()
        )
        convolved = convolved.flatten(1)
        features = torch.addmm(self._bias, self._weight, convolved.t()).clamp_min_(0.0)
        heads = torch.addmm(self._heads_bias, self._heads, features).to(torch.float32)
        return Outputs(heads[:-1].t(), heads[-1]), _Step(observations, convolved, features)

    @torch.no_grad()
    def _backward(self, logits_grad: Tensor, values_grad: Tensor, forget: bool) -> None:
        convolved = torch.cat([step.convolved for step in self._unroll])
        features = torch.cat([step.features for step in self._unroll], dim=1)
        grad = heads_gradient(logits_grad, values_grad).t().to(self._dtype)  # [L + 1, N]
        heads_grad, bias_grad = grad @ features.t(), grad.sum(1)
        not_none(self._policy.weight.grad).copy_(heads_grad[:-1])
        not_none(self._value.weight.grad).copy_(heads_grad[-1:])
        not_none(self._policy.bias.grad).copy_(bias_grad[:-1])
        not_none(self._value.bias.grad).copy_(bias_grad[-1:])
        grad = through_relu(self._heads.t() @ grad, features)
        weight_grad = not_none(self._linear.weight.grad)
        if weight_grad.dtype == self._dtype:
            torch.mm(grad, convolved, out=weight_grad)
        else:
            weight_grad.copy_(grad @ convolved)
        not_none(self._linear.bias.grad).copy_(grad.sum(1))
        self._convolution_backward(through_relu(grad.t() @ self._weight, convolved))

    def _convolution_backward(self, grad: Tensor) -> None:
        """Overwrite the convolution's gradients from that of its outputs, [N, R]."""
        filters_grad = torch.zeros_like(self._filters)
        for step, part in zip(self._unroll, grad.chunk(len(self._unroll)), strict=True):
            shape = self._convolved_shape(step.observations)
            _convolve_backward(
                step.observations.numpy(), part.view(shape).numpy(), filters_grad.flatten(2).numpy()
            )
        filters_grad.mul_(PIXEL_SCALE)
        not_none(self._convolution.weight.grad).copy_(filters_grad.flip(2).permute(3, 0, 1, 2))
        bias_grad = grad.view(-1, filters_grad.shape[3]).sum(0)
        not_none(not_none(self._convolution.bias).grad).copy_(bias_grad)

    def _convolved_shape(self, observations: Tensor) -> tuple[int, int, int]:
        batch, height, width, _ = observations.shape
        _, side, _, outputs = self._filters.shape
        return batch, height - side + 1, (width - side + 1) * outputs


@kernel
def _convolve(pixels: Any, filters: Any, blank: Any, cell: Any, outputs: Any) -> None:
    """Convolve and apply the ReLU: add each cell that is not empty to the outputs that see it.

    Pixels are uint8 [B, H, W, C], filters [C, k, k·O], outputs [B, H - k + 1, (W - k + 1)·O]; blank
    ones, without the B, are the bias. `cell` [k, k·O] is room for what a cell adds.
    """
    channels, side, run = filters.shape
    count = run // side
    rows, columns = outputs.shape[1], outputs.shape[2]
    for b in range(pixels.shape[0]):
        for top in range(rows):
            target, empty = outputs[b, top], blank[top]
            for m in range(columns):
                target[m] = empty[m]
        last = pixels[b, 0, 0]  # of which `cell` is known
        known = False
        for y in range(pixels.shape[1]):
            for x in range(pixels.shape[2]):
                empty, alike = True, known
                for c in range(channels):
                    empty &= pixels[b, y, x, c] == 0
                    alike &= pixels[b, y, x, c] == last[c]
                if empty:
                    continue
                if not alike:  # many cells are like the one before
                    last, known = pixels[b, y, x], True
                    cell[:] = 0
                    for c in range(channels):
                        if last[c] == 0:
                            continue
                        pixel = filters.dtype.type(last[c])
                        for i in range(side):
                            target, part = cell[i], filters[c, i]
                            for m in range(run):
                                target[m] += pixel * part[m]
                first = (x - side + 1) * count  # of the outputs of a line that see the cell
                start, stop = max(first, 0), min(first + run, columns)
                for top in range(max(0, y - side + 1), min(y + 1, rows)):
                    target = outputs[b, top, start:stop]
                    part = cell[y - top, start - first : stop - first]
                    for m in range(stop - start):
                        target[m] += part[m]
        for top in range(rows):
            target = outputs[b, top]
            for m in range(columns):
                target[m] = 0 if target[m] < 0 else target[m]  # NaN stays, to be found


@kernel
def _convolve_backward(pixels: Any, grad: Any, filters_grad: Any) -> None:
    """Add the gradient by the filters, from that by the outputs; shapes as in `_convolve`."""
    channels, side, run = filters_grad.shape
    rows, columns = grad.shape[1], grad.shape[2]
    count = run // side
    for b in range(pixels.shape[0]):
        for y in range(pixels.shape[1]):
            for x in range(pixels.shape[2]):
                for c in range(channels):
                    if pixels[b, y, x, c] == 0:
                        continue
                    pixel = filters_grad.dtype.type(pixels[b, y, x, c])
                    first = (x - side + 1) * count
                    start, stop = max(first, 0), min(first + run, columns)
                    for top in range(max(0, y - side + 1), min(y + 1, rows)):
                        target = filters_grad[c, y - top, start - first : stop - first]
                        part = grad[b, top, start:stop]
                        for m in range(stop - start):
                            target[m] += pixel * part[m]
