"""Forward and backward passes of a plain stack of convolutions on a CPU: the hot loop of training.

The mathematics of autograd on `ActorCritic`, up to rounding, but faster (docs/performance.md says
by how much):

* **Every convolution is dense.** One of kernel k and stride s, s dividing k, is one of kernel k/s
  and stride 1 over blocks of s × s pixels, each block's pixels laid out as s²·C channels ("space to
  depth"). Its gradients are those of an ordinary convolution, for which libraries are fast; those
  of a strided one are not.
* **Nothing is computed twice.** ReLU and the layout of the next layer are one pass over memory, as
  are their gradients. The 1/255 that scales pixels is a factor of the first layer's weights, and a
  pixel is exact in any floating-point type.
* **What fits the cache stays there.** Convolutions are differentiated agent step by agent step, the
  linear layers, whose weights are large, once for the whole unroll.

Parameters, their gradients, logits and values are float32. Weights and activations in between have
the type of the constructor's `dtype`: in bfloat16 a product is rounded to 8 bits of mantissa, while
sums within a layer are carried in float32 by the hardware that has it.

T: agent steps in an unroll. B: observations in an agent step. N = T·B. L: logits of a policy. H, W,
C: height, width and channels of a layer's input.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Any, cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from leap_rl.core.kernels import kernel
from leap_rl.networks.actor_critic import (
    ActorCritic,
    ForwardBackward,
    Outputs,
    heads_gradient,
    through_relu,
)
from leap_rl.networks.encoders import Encoder

PIXEL_SCALE = 1.0 / 255.0


def is_plain(network: ActorCritic) -> bool:
    """Whether `DenseConvCpu` can compute the network.

    Its encoder must be convolutions, unpadded and each with a kernel that is a multiple of its
    stride, then one linear layer, a ReLU after each.
    """
    if not isinstance(network.encoder, Encoder):
        return False
    layers = [layer for layer in network.encoder if not isinstance(layer, nn.ReLU)]
    *convolutions, flatten, linear = layers
    return (
        all(
            isinstance(layer, nn.Conv2d)
            and layer.padding == (0, 0)
            and layer.kernel_size[0] % layer.stride[0] == 0
            for layer in convolutions
        )
        and not any(flatten.parameters())
        and isinstance(linear, nn.Linear)
        and sum(isinstance(layer, nn.ReLU) for layer in network.encoder) == len(layers) - 1
    )


def not_none(tensor: Tensor | None) -> Tensor:
    """Narrow an optional tensor, such as the gradient of a parameter in a flat vector."""
    assert tensor is not None
    return tensor


class _Dense:
    """One convolution over blocks, computed with `weight` and `bias`.

    They stand for the layer's own float32 parameters, in torch's usual layout [outputs, C, k, k].
    """

    def __init__(self, layer: nn.Conv2d, *, scale: float, dtype: torch.dtype) -> None:
        assert layer.bias is not None
        self.stride = layer.stride[0]
        self.kernel = layer.kernel_size[0] // self.stride
        self._layer = layer
        self._scale = scale
        # [outputs, k/s, k/s, s, s, C] in memory: torch's "channels last" of the blocks' layout.
        self._blocks = torch.empty(self._by_block(layer.weight).shape, dtype=dtype)
        self.weight = self._blocks.flatten(3).permute(0, 3, 1, 2)
        self.bias = torch.empty(layer.out_channels, dtype=dtype)

    def _by_block(self, weight: Tensor) -> Tensor:
        """View [outputs, C, k, k] as [outputs, k/s, k/s, s, s, C]."""
        outputs, channels, _, _ = weight.shape
        split = weight.view(outputs, channels, self.kernel, self.stride, self.kernel, self.stride)
        return split.permute(0, 2, 4, 3, 5, 1)

    def outputs_shape(self, inputs: Tensor) -> tuple[int, int, int, int]:
        """Return the outputs' [B, H, W, C] for inputs by blocks, [B, H/s, W/s, s²·C]."""
        batch, rows, columns, _ = inputs.shape
        return batch, rows - self.kernel + 1, columns - self.kernel + 1, len(self.bias)

    def refresh(self) -> None:
        torch.mul(self._by_block(self._layer.weight), self._scale, out=self._blocks)
        self.bias.copy_(not_none(self._layer.bias))

    def zero_grad(self) -> None:
        not_none(self._layer.weight.grad).zero_()
        not_none(not_none(self._layer.bias).grad).zero_()

    def add_gradient(self, weight_grad: Tensor, bias_grad: Tensor) -> None:
        blocks = weight_grad.permute(0, 2, 3, 1).reshape(self._blocks.shape)
        self._by_block(not_none(self._layer.weight.grad)).add_(blocks, alpha=self._scale)
        not_none(not_none(self._layer.bias).grad).add_(bias_grad)


@dataclass(frozen=True, slots=True)
class _Step:
    """What the backward pass needs of one agent step."""

    inputs: list[Tensor]
    """Each convolution's input by blocks, [B, H/s, W/s, s²·C]; the first one's in uint8."""
    flat: Tensor
    """[B, features of the last convolution], after its ReLU."""
    hidden: Tensor
    """[B, features of the encoder]."""


class DenseConvCpu(ForwardBackward):
    """The passes of a network that `is_plain`, on the CPU.

    The network's parameters and gradients are in a flat vector. Weights and activations have the
    `dtype`: float32, bfloat16, or float64 for tests.
    """

    def __init__(self, network: ActorCritic, *, dtype: torch.dtype = torch.float32) -> None:
        super().__init__()
        assert is_plain(network)
        self._dtype = dtype
        self._head_dtype = torch.promote_types(dtype, torch.float32)
        layers = network.encoder.children()
        first, *others = (layer for layer in layers if isinstance(layer, nn.Conv2d))
        self._convolutions = [
            _Dense(first, scale=PIXEL_SCALE, dtype=dtype),
            *(_Dense(layer, scale=1.0, dtype=dtype) for layer in others),
        ]
        self._hidden_layer = cast(nn.Linear, network.encoder.get_submodule("linear"))
        self._head_layers = (network.policy, network.value)
        self.refresh()

    @torch.no_grad()
    def refresh(self) -> None:
        for convolution in self._convolutions:
            convolution.refresh()
        hidden, (policy, value) = self._hidden_layer, self._head_layers
        self._hidden_weight = hidden.weight.detach().to(self._dtype)
        self._hidden_bias = hidden.bias.detach().to(self._dtype)
        # Both heads are one matrix, [L + 1, features], too small to be worth less precision.
        self._heads_weight = torch.cat([policy.weight, value.weight]).to(self._head_dtype)
        self._heads_bias = torch.cat([policy.bias, value.bias]).to(self._head_dtype)

    @torch.no_grad()
    def _forward(self, observations: Tensor) -> tuple[Outputs, _Step]:
        inputs, flat = self._convolve(observations)
        features = F.linear(flat, self._hidden_weight, self._hidden_bias).clamp_min_(0.0)
        heads = F.linear(features.to(self._head_dtype), self._heads_weight, self._heads_bias)
        heads = heads.to(torch.float32)
        return Outputs(heads[:, :-1], heads[:, -1]), _Step(inputs, flat, features)

    def _convolve(self, observations: Tensor) -> tuple[list[Tensor], Tensor]:
        """Return each convolution's input, and the last one's outputs [B, features]."""
        first, *others = self._convolutions
        blocks = space_to_depth(observations, first.stride)
        inputs = [blocks]
        hidden = blocks.to(self._dtype)
        for convolution, following in zip(self._convolutions, [*others, None], strict=True):
            outputs = F.conv2d(hidden.permute(0, 3, 1, 2), convolution.weight, convolution.bias)
            outputs = outputs.permute(0, 2, 3, 1)
            if following is None:
                hidden = outputs.clamp_min_(0.0)
            else:
                hidden = relu_by_block(outputs, following.stride)
                inputs.append(hidden)
        return inputs, hidden.flatten(1)

    @torch.no_grad()
    def _backward(self, logits_grad: Tensor, values_grad: Tensor, forget: bool) -> None:
        steps = self._unroll
        flat = torch.cat([step.flat for step in steps])
        features = torch.cat([step.hidden for step in steps])
        grad = heads_gradient(logits_grad, values_grad)
        for layer, part in zip(self._head_layers, (grad[:, :-1], grad[:, -1:]), strict=True):
            _linear_gradient(layer, part, features.to(torch.float32))
        grad = grad.to(self._head_dtype) @ self._heads_weight
        grad = through_relu(grad.to(self._dtype), features)
        _linear_gradient(self._hidden_layer, grad, flat)
        grad = through_relu(grad @ self._hidden_weight, flat)
        for convolution in self._convolutions:
            convolution.zero_grad()
        # Newest first: its activations are the ones that may still be in the cache.
        for step, part in zip(reversed(steps), reversed(grad.chunk(len(steps))), strict=True):
            self._step_backward(step.inputs, part)

    def _step_backward(self, all_inputs: list[Tensor], grad: Tensor) -> None:
        """Add one agent step's gradients, from that of the last outputs [B, features]."""
        for index in reversed(range(len(self._convolutions))):
            convolution, inputs = self._convolutions[index], all_inputs[index]
            inputs_grad, weight_grad, bias_grad = torch.ops.aten.convolution_backward(
                grad.view(convolution.outputs_shape(inputs)).permute(0, 3, 1, 2),
                inputs.to(self._dtype).permute(0, 3, 1, 2),
                convolution.weight,
                [len(convolution.bias)],  # the bias's size; then stride, padding, dilation,
                [1, 1],
                [0, 0],
                [1, 1],
                False,  # transposed, output padding, groups,
                [0, 0],
                1,
                [index > 0, True, True],  # and which gradients are wanted
            )
            convolution.add_gradient(weight_grad, bias_grad)
            if index > 0:
                before = self._convolutions[index - 1].outputs_shape(all_inputs[index - 1])
                grad = through_relu_by_block(
                    inputs_grad.permute(0, 2, 3, 1), inputs, convolution.stride, before
                )


def _linear_gradient(layer: nn.Linear, grad: Tensor, inputs: Tensor) -> None:
    """Overwrite a layer's gradient, from that of its outputs [N, O] and its inputs [N, I]."""
    weight_grad, bias_grad = not_none(layer.weight.grad), not_none(layer.bias.grad)
    if grad.dtype == weight_grad.dtype:
        torch.mm(grad.t(), inputs, out=weight_grad)
    else:
        weight_grad.copy_(grad.t() @ inputs)
    bias_grad.copy_(torch.sum(grad, 0, dtype=torch.float32))


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
