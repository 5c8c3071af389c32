"""The compiled passes of the encoder `mlp`: two layers of 64 tanh on a vector.

B: observations in an agent step. N: in an unroll. L: logits of a policy. V: length of an
observation.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from leap_rl.core.kernels import kernel
from leap_rl.networks.compiled_cpu import (
    CompiledCpu,
    add_rows,
    heads_backward,
    heads_forward,
    unpack_heads,
)
from leap_rl.networks.dense_conv_cpu import PIXEL_SCALE
from leap_rl.networks.parameters import FlatParameters

UNITS: Final = 64
"""Of each layer."""


class CompiledMlpCpu(CompiledCpu):
    """The passes of two layers of 64 tanh."""

    def __init__(self, flat: FlatParameters) -> None:
        super().__init__(flat)
        _, length = self.shapes["encoder.linear1.weight"]
        padded = -(-length // 8) * 8
        self._layers = tuple(
            np.zeros(shape, dtype=np.float32)
            for shape in ((padded, UNITS), (UNITS,), (UNITS, UNITS), (UNITS,))
        )
        self.refresh()

    def refresh(self) -> None:
        vector = self._flat.vector.numpy()
        _unpack(vector, self._places, *self._layers)
        unpack_heads(vector, self._places, self._num_logits, self._heads, self._heads_bias)

    def _kept_of(self, observations: NDArray[Any]) -> tuple[NDArray[Any], ...]:
        sizes = (self._layers[0].shape[0], UNITS, UNITS)
        return tuple(np.zeros((0, size), dtype=np.float32) for size in sizes)

    def _compute(self, observations: NDArray[Any], kept: tuple[NDArray[Any], ...]) -> None:
        scale = np.float32(PIXEL_SCALE if observations.dtype == np.uint8 else 1.0)
        weight1, bias1, weight2, bias2 = self._layers
        layers = (weight1, bias1, weight2, bias2, self._heads, self._heads_bias)
        _forward(observations, scale, *layers, *kept)

    def _backward(self, logits_grad: Tensor, values_grad: Tensor, forget: bool) -> None:
        inputs, hidden, features, _, _ = (part[: self._rows] for part in self._kept)
        _backward(
            self._flat.vector.numpy(),
            self._places,
            self._flat.grad.numpy(),
            inputs,
            hidden,
            features,
            logits_grad.flatten(0, 1).contiguous().numpy(),
            values_grad.flatten().contiguous().numpy(),
        )


# The encoder's parameters in the flat vector's order, of which `places` says where each begins.
_WEIGHT1, _BIAS1, _WEIGHT2, _BIAS2 = range(4)


@kernel
def _unpack(vector: Any, places: Any, weight1: Any, bias1: Any, weight2: Any, bias2: Any) -> None:
    """Write the weights as the forward pass reads them: [V, 64], padded, and [64, 64]."""
    length = (places[_BIAS1] - places[_WEIGHT1]) // UNITS
    for j in range(UNITS):
        bias1[j] = vector[places[_BIAS1] + j]
        bias2[j] = vector[places[_BIAS2] + j]
        for i in range(length):
            weight1[i, j] = vector[places[_WEIGHT1] + j * length + i]
        for i in range(UNITS):
            weight2[i, j] = vector[places[_WEIGHT2] + j * UNITS + i]


@kernel
def _forward(
    observations: Any,
    scale: Any,
    weight1: Any,
    bias1: Any,
    weight2: Any,
    bias2: Any,
    heads: Any,
    heads_bias: Any,
    inputs: Any,
    hidden: Any,
    features: Any,
    logits: Any,
    values: Any,
) -> None:
    """Write the outputs of observations [B, V], times `scale`, and what their gradient needs."""
    for b in range(observations.shape[0]):
        for v in range(observations.shape[1]):
            inputs[b, v] = scale * observations[b, v]
        hidden[b] = bias1
        add_rows(inputs[b], weight1, hidden[b])
        _tanh(hidden[b])
        features[b] = bias2
        add_rows(hidden[b], weight2, features[b])
        _tanh(features[b])
    heads_forward(features, heads, heads_bias, logits, values)


_BOUND = np.float32(7.90531110763549805)
_ODD = np.array(
    [
        *[-2.76076847742355e-16, 2.00018790482477e-13, -8.60467152213735e-11],
        *[5.12229709037114e-08, 1.48572235717979e-05, 6.37261928875436e-04],
        4.89352455891786e-03,
    ],
    dtype=np.float32,
)
_EVEN = np.array(
    [1.19825839466702e-06, 1.18534705686654e-04, 2.26843463243900e-03, 4.89352518554385e-03],
    dtype=np.float32,
)


@kernel
def _tanh(numbers: Any) -> None:
    """Replace numbers by their tanh, within some units in the last place.

    A quotient of polynomials, x·p(x²) / q(x²), as in Eigen (`MathFunctionsImpl.h`): a compiler
    makes vector instructions of it, which it cannot of the library's tanh.
    """
    for j in range(len(numbers)):
        x = numbers[j]
        x = _BOUND if x > _BOUND else x  # NaN stays, to be found
        x = -_BOUND if x < -_BOUND else x
        square = x * x
        odd = _ODD[0]
        for k in range(1, 7):
            odd = odd * square + _ODD[k]
        even = _EVEN[0]
        for k in range(1, 4):
            even = even * square + _EVEN[k]
        numbers[j] = x * odd / even


@kernel
def _backward(
    vector: Any,
    places: Any,
    gradient: Any,
    inputs: Any,
    hidden: Any,
    features: Any,
    logits_grad: Any,
    values_grad: Any,
) -> None:
    """Write the gradient by all parameters, from those by the logits [N, L] and the values [N]."""
    count, length = inputs.shape[0], (places[_BIAS1] - places[_WEIGHT1]) // UNITS
    features_grad = np.empty((count, UNITS), dtype=np.float32)
    hidden_grad = np.empty((count, UNITS), dtype=np.float32)
    heads_backward(vector, places, features, logits_grad, values_grad, features_grad, gradient)
    weight2 = vector[places[_WEIGHT2] : places[_WEIGHT2] + UNITS * UNITS].reshape((UNITS, UNITS))
    for n in range(count):
        _through_tanh(features[n], features_grad[n])
        hidden_grad[n] = 0
        add_rows(features_grad[n], weight2, hidden_grad[n])
        _through_tanh(hidden[n], hidden_grad[n])
    _write_layer(gradient, places[_WEIGHT2], places[_BIAS2], UNITS, hidden, features_grad)
    _write_layer(gradient, places[_WEIGHT1], places[_BIAS1], length, inputs, hidden_grad)


@kernel
def _through_tanh(outputs: Any, grad: Any) -> None:
    one = np.float32(1)
    for j in range(len(outputs)):
        grad[j] *= one - outputs[j] * outputs[j]


@kernel
def _write_layer(
    gradient: Any, weight: int, bias: int, length: int, inputs: Any, grad: Any
) -> None:
    """Write a layer's gradients, of weights [64, length], from its inputs and its outputs' one."""
    sums = np.zeros((inputs.shape[1], UNITS), dtype=np.float32)
    bias_grad = gradient[bias : bias + UNITS]
    bias_grad[:] = 0
    for n in range(inputs.shape[0]):
        row = grad[n]
        for j in range(UNITS):
            bias_grad[j] += row[j]
        for i in range(length):
            factor, target = inputs[n, i], sums[i]
            for j in range(UNITS):
                target[j] += factor * row[j]
    for j in range(UNITS):
        for i in range(length):
            gradient[weight + j * length + i] = sums[i, j]
