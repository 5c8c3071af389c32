"""The compiled passes of the encoder `minatar`: a convolution over sparse cells, a linear layer.

Most cells of such a game are empty, and where a filter sees empty cells only, the convolution gives
its bias. The linear layer's sum over such places is computed once an update; an observation adds
what differs at the places that it touches.

B: observations in an agent step. N: in an unroll. L: logits of a policy. H, W, C: an observation's
height, width and channels. P = (H - 2)·(W - 2): places of the filters.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from leap_rl.core.kernels import kernel
from leap_rl.networks.compiled_cpu import (
    CompiledCpu,
    heads_backward,
    heads_forward,
    unpack_heads,
)
from leap_rl.networks.dense_conv_cpu import PIXEL_SCALE
from leap_rl.networks.parameters import FlatParameters

# The encoder's sizes: loops of a known length are compiled to a third of the time.
SIDE: Final = 3
"""Of the convolution's kernel."""
FILTERS: Final = 16
FEATURES: Final = 128


class CompiledConvCpu(CompiledCpu):
    """The passes of a convolution of 16 filters of 3 × 3 and a linear layer of 128 features."""

    def __init__(self, flat: FlatParameters) -> None:
        super().__init__(flat)
        _, channels, _, _ = self.shapes["encoder.conv1.weight"]
        _, convolved = self.shapes["encoder.linear.weight"]
        self._filters = np.zeros((channels, SIDE, SIDE * FILTERS), dtype=np.float32)
        self._bias = np.zeros(FILTERS, dtype=np.float32)
        self._linear = np.zeros((convolved // FILTERS, FILTERS, FEATURES), dtype=np.float32)
        self._start = np.zeros(FEATURES, dtype=np.float32)
        self.refresh()

    def refresh(self) -> None:
        vector = self._flat.vector.numpy()
        _unpack(vector, self._places, self._filters, self._bias, self._linear, self._start)
        unpack_heads(vector, self._places, self._num_logits, self._heads, self._heads_bias)

    def _kept_of(self, observations: NDArray[Any]) -> tuple[NDArray[Any], ...]:
        self._shape = observations.shape[1:]
        words = -(-observations[0].size // 8)
        sizes = (self._linear.shape[0] * FILTERS, FEATURES)
        return (
            np.zeros((0, 8 * words), dtype=np.uint8),
            *(np.zeros((0, size), dtype=np.float32) for size in sizes),
        )

    def _compute(self, observations: NDArray[Any], kept: tuple[NDArray[Any], ...]) -> None:
        layers = (self._filters, self._bias, self._linear, self._start)
        _forward(observations, *layers, self._heads, self._heads_bias, *kept)

    def _backward(self, logits_grad: Tensor, values_grad: Tensor, forget: bool) -> None:
        pixels, convolved, features, _, _ = (part[: self._rows] for part in self._kept)
        vector, gradient = self._flat.vector, self._flat.grad
        features_grad = torch.empty((self._rows, FEATURES))
        _backward_to_linear(
            vector.numpy(),
            self._places,
            features,
            logits_grad.flatten(0, 1).contiguous().numpy(),
            values_grad.flatten().contiguous().numpy(),
            features_grad.numpy(),
            gradient.numpy(),
        )
        # Large enough for the library to be faster.
        first, shape = self._places[_WEIGHT], (FEATURES, convolved.shape[1])
        last = first + FEATURES * convolved.shape[1]
        weight, weight_grad = (part[first:last].view(shape) for part in (vector, gradient))
        torch.mm(features_grad.t(), torch.from_numpy(convolved), out=weight_grad)
        convolved_grad = torch.mm(features_grad, weight)
        _backward_to_filters(
            self._places,
            self._shape,
            pixels,
            convolved,
            convolved_grad.numpy(),
            gradient.numpy(),
        )


# The encoder's parameters in the flat vector's order, of which `places` says where each begins.
_FILTERS, _BIAS, _WEIGHT, _START = range(4)


@kernel
def _unpack(vector: Any, places: Any, filters: Any, bias: Any, linear: Any, start: Any) -> None:
    """Write the parameters as the forward pass reads them.

    Filters are [C, 3, 3·16], turned by 180 degrees, as a cell adds them to the outputs around it.
    The linear layer is [P, 16, 128]; `start` [128] is what it makes of empty observations.
    """
    scale = np.float32(PIXEL_SCALE)
    channels = filters.shape[0]
    at = places[_FILTERS]
    for o in range(FILTERS):
        for c in range(channels):
            for y in range(SIDE):
                for x in range(SIDE):
                    part = vector[at + ((o * channels + c) * SIDE + y) * SIDE + x]
                    filters[c, SIDE - 1 - y, (SIDE - 1 - x) * FILTERS + o] = scale * part
    bias[:] = vector[places[_BIAS] : places[_BIAS] + FILTERS]
    start[:] = vector[places[_START] : places[_START] + FEATURES]
    size = linear.shape[0] * FILTERS
    weight = vector[places[_WEIGHT] : places[_WEIGHT] + FEATURES * size]
    by_feature = weight.reshape((FEATURES, linear.shape[0], FILTERS))
    for first in range(0, FEATURES, 16):  # read from as many pages at a time
        for p in range(linear.shape[0]):
            part = linear[p]
            for j in range(first, first + 16):
                row = by_feature[j, p]
                for o in range(FILTERS):
                    part[o, j] = row[o]
    for p in range(linear.shape[0]):
        part = linear[p]
        for o in range(FILTERS):
            empty = bias[o]
            if empty < 0:
                continue
            row = part[o]
            for j in range(FEATURES):
                start[j] += empty * row[j]


@kernel
def _forward(
    pixels: Any,
    filters: Any,
    bias: Any,
    linear: Any,
    start: Any,
    heads: Any,
    heads_bias: Any,
    kept: Any,
    convolved: Any,
    features: Any,
    logits: Any,
    values: Any,
) -> None:
    """Write the outputs of pixels uint8 [B, H, W, C], and what their gradient needs.

    That is the pixels, in whole words, the convolution's outputs [B, P·16] and the features.
    """
    touched = np.empty((linear.shape[0], pixels.shape[0]), dtype=np.bool_)
    _convolve(pixels, filters, bias, kept, convolved, touched)
    for b in range(pixels.shape[0]):
        features[b] = start
    _add_touched(convolved, bias, touched, linear, features)
    for b in range(pixels.shape[0]):
        row = features[b]
        for j in range(FEATURES):
            row[j] = 0 if row[j] < 0 else row[j]  # NaN stays, to be found
    heads_forward(features, heads, heads_bias, logits, values)


@kernel
def _convolve(
    pixels: Any, filters: Any, bias: Any, kept: Any, convolved: Any, touched: Any
) -> None:
    """Add each pixel that is not zero to the outputs that see it; apply the ReLU.

    `touched` [P, B] says which outputs see any.
    """
    batch, height, width, channels = pixels.shape
    rows, size = height - SIDE + 1, (width - SIDE + 1) * FILTERS
    # The outputs of all places where a filter touches an observation, also beyond its edges.
    across = width + SIDE - 1
    around = np.empty((height + SIDE - 1) * across * FILTERS, dtype=np.float32)
    unseen = np.empty_like(around)
    for m in range(len(unseen)):
        unseen[m] = bias[m % FILTERS]
    seen = np.empty((height + SIDE - 1) * across, dtype=np.bool_)
    found = np.empty(height * width * channels + 8, dtype=np.int64)
    for b in range(batch):
        around[:] = unseen
        seen[:] = False
        cells = pixels[b].reshape(-1)
        kept[b, : len(cells)] = cells
        for n in range(_find(kept[b], found)):
            cell, channel = divmod(found[n], channels)
            y, x = divmod(cell, width)
            value = np.float32(kept[b, found[n]])
            for i in range(SIDE):
                at = (y + i) * across + x
                target = around[at * FILTERS : (at + SIDE) * FILTERS]
                part = filters[channel, i]
                for m in range(SIDE * FILTERS):
                    target[m] += value * part[m]
                for k in range(SIDE):
                    seen[at + k] = True
        for y in range(rows):
            at = (y + SIDE - 1) * across + SIDE - 1
            target = convolved[b, y * size : (y + 1) * size]
            part = around[at * FILTERS : at * FILTERS + size]
            for m in range(size):
                target[m] = 0 if part[m] < 0 else part[m]
            for x in range(width - SIDE + 1):
                touched[y * (width - SIDE + 1) + x, b] = seen[at + x]


@kernel
def _find(pixels: Any, found: Any) -> int:
    """Write the places of the pixels that are not zero; return how many there are."""
    count = 0
    words = pixels.view(np.uint64)
    for w in range(len(words)):
        if words[w] == 0:
            continue
        for k in range(8 * w, 8 * w + 8):
            found[count] = k
            count += pixels[k] != 0
    return count


@kernel
def _add_touched(convolved: Any, bias: Any, touched: Any, linear: Any, features: Any) -> None:
    """Add to the linear layer's outputs [B, 128] what differs from empty observations."""
    blank = np.empty(FILTERS, dtype=np.float32)
    for o in range(FILTERS):
        blank[o] = 0 if bias[o] < 0 else bias[o]
    differs = np.empty((4, FILTERS), dtype=np.float32)
    which = np.empty(4, dtype=np.int64)
    rest = np.zeros((4, FEATURES), dtype=np.float32)
    for p in range(linear.shape[0]):
        count = 0
        for b in range(len(features)):
            if not touched[p, b]:
                continue
            part, target = convolved[b, p * FILTERS : (p + 1) * FILTERS], differs[count]
            for o in range(FILTERS):
                target[o] = part[o] - blank[o]
            which[count] = b
            count += 1
            if count == 4:
                _add_rows(
                    differs,
                    linear[p],
                    features[which[0]],
                    features[which[1]],
                    features[which[2]],
                    features[which[3]],
                )
                count = 0
        if count > 0:
            _add_rows(
                differs,
                linear[p],
                features[which[0]],
                features[which[1]] if count > 1 else rest[1],
                features[which[2]] if count > 2 else rest[2],
                rest[3],
            )


@kernel
def _add_rows(factors: Any, rows: Any, sums0: Any, sums1: Any, sums2: Any, sums3: Any) -> None:
    """Add 16 rows of 128 numbers, times factors [4, 16], to four sums [128]."""
    a, b, c, d = factors[0], factors[1], factors[2], factors[3]
    for k in range(0, FILTERS, 4):
        a0, a1, a2, a3 = a[k], a[k + 1], a[k + 2], a[k + 3]
        b0, b1, b2, b3 = b[k], b[k + 1], b[k + 2], b[k + 3]
        c0, c1, c2, c3 = c[k], c[k + 1], c[k + 2], c[k + 3]
        d0, d1, d2, d3 = d[k], d[k + 1], d[k + 2], d[k + 3]
        row0, row1, row2, row3 = rows[k], rows[k + 1], rows[k + 2], rows[k + 3]
        for j in range(FEATURES):
            r0, r1, r2, r3 = row0[j], row1[j], row2[j], row3[j]
            sums0[j] += (a0 * r0 + a1 * r1) + (a2 * r2 + a3 * r3)
            sums1[j] += (b0 * r0 + b1 * r1) + (b2 * r2 + b3 * r3)
            sums2[j] += (c0 * r0 + c1 * r1) + (c2 * r2 + c3 * r3)
            sums3[j] += (d0 * r0 + d1 * r1) + (d2 * r2 + d3 * r3)


@kernel
def _backward_to_linear(
    vector: Any,
    places: Any,
    features: Any,
    logits_grad: Any,
    values_grad: Any,
    features_grad: Any,
    gradient: Any,
) -> None:
    """Write the gradients by the heads and the linear layer's bias, and by its outputs [N, 128].

    Given are those by the logits [N, L] and the values [N].
    """
    heads_backward(vector, places, features, logits_grad, values_grad, features_grad, gradient)
    bias_grad = gradient[places[_START] : places[_START] + FEATURES]
    bias_grad[:] = 0
    for n in range(features.shape[0]):
        row, grad = features[n], features_grad[n]
        for j in range(FEATURES):
            grad[j] = 0 if row[j] <= 0 else grad[j]
        for j in range(FEATURES):
            bias_grad[j] += grad[j]


@kernel
def _backward_to_filters(
    places: Any, shape: Any, pixels: Any, convolved: Any, convolved_grad: Any, gradient: Any
) -> None:
    """Write the gradients by the filters and their bias, from that by the outputs [N, P·16].

    Pixels are [N, H·W·C], in whole words, of observations of `shape`.
    """
    height, width, channels = shape
    rows, size = height - SIDE + 1, (width - SIDE + 1) * FILTERS
    across = width + SIDE - 1
    around = np.zeros((height + SIDE - 1) * across * FILTERS, dtype=np.float32)
    sums = np.zeros(size, dtype=np.float32)
    found = np.empty(pixels.shape[1] + 8, dtype=np.int64)
    filters_grad = np.zeros((channels, SIDE, SIDE * FILTERS), dtype=np.float32)
    for n in range(len(pixels)):
        for y in range(rows):
            at = ((y + SIDE - 1) * across + SIDE - 1) * FILTERS
            target, part = around[at : at + size], convolved_grad[n, y * size : (y + 1) * size]
            output = convolved[n, y * size : (y + 1) * size]
            for m in range(size):
                target[m] = 0 if output[m] <= 0 else part[m]
            for m in range(size):
                sums[m] += target[m]
        for f in range(_find(pixels[n], found)):
            cell, channel = divmod(found[f], channels)
            y, x = divmod(cell, width)
            value = np.float32(pixels[n, found[f]])
            for i in range(SIDE):
                at = ((y + i) * across + x) * FILTERS
                target, part = filters_grad[channel, i], around[at : at + SIDE * FILTERS]
                for m in range(SIDE * FILTERS):
                    target[m] += value * part[m]
    bias_grad = gradient[places[_BIAS] : places[_BIAS] + FILTERS]
    bias_grad[:] = 0
    for m in range(size):
        bias_grad[m % FILTERS] += sums[m]
    scale = np.float32(PIXEL_SCALE)
    for o in range(FILTERS):
        for c in range(channels):
            for y in range(SIDE):
                for x in range(SIDE):
                    at = places[_FILTERS] + ((o * channels + c) * SIDE + y) * SIDE + x
                    turned = filters_grad[c, SIDE - 1 - y, (SIDE - 1 - x) * FILTERS + o]
                    gradient[at] = scale * turned
