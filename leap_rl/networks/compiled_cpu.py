"""What the compiled passes of small networks share: memory for an unroll, and the heads.

For 16 observations of a small game a library spends its time on the overhead of calls. Here the
forward pass is one call of a compiled loop, from observations to logits, and the backward pass one
or two, for a whole unroll.

Inner loops run over independent outputs, and the order of sums is written down: no sum is left to
the compiler, so that the bits are the same on processors of one kind.

T: agent steps in an unroll. B: observations in an agent step. N = T·B. L: logits of a policy. J:
features of the encoder.
"""

from __future__ import annotations

from abc import abstractmethod
from typing import Any, Final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from leap_rl.core.kernels import kernel
from leap_rl.networks.actor_critic import ForwardBackward, Outputs
from leap_rl.networks.parameters import FlatParameters

LANES: Final = 16
"""Sums run side by side; what is short is padded to as many."""


class CompiledCpu(ForwardBackward):
    """Passes in float32 of a network whose parameters and gradients are in `flat`.

    What the gradient needs of each agent step is kept in arrays of N rows.
    """

    def __init__(self, flat: FlatParameters) -> None:
        super().__init__()
        self._flat = flat
        self._places = np.array([leaf.offset for leaf in flat.layout.leaves])
        """Where each parameter begins in the flat vector."""
        self.shapes = {leaf.name: leaf.shape for leaf in flat.layout.leaves}
        self._num_logits, features = self.shapes["policy.weight"]
        padded = -(-(self._num_logits + 1) // LANES) * LANES
        # Both heads are one matrix, [J, L + 1].
        self._heads = np.zeros((features, padded), dtype=np.float32)
        self._heads_bias = np.zeros(padded, dtype=np.float32)
        self._rows = 0  # of the unroll so far
        self._kept: tuple[NDArray[Any], ...] = ()
        # By the first row and the last: views of what is kept, and the outputs of these rows.
        self._views: dict[tuple[int, int], tuple[tuple[NDArray[Any], ...], Outputs]] = {}

    def record(self, observations: Tensor) -> Outputs:
        """See `ForwardBackward.record`; the next unroll overwrites what is returned."""
        outputs, _ = self._forward(observations)
        self._rows += observations.shape[0]
        return outputs

    def forward(self, observations: Tensor) -> Outputs:
        outputs, _ = self._forward(observations)
        return Outputs(*(part.clone() for part in outputs))

    def forget(self) -> None:
        self._rows = 0

    def _forward(self, observations: Tensor) -> tuple[Outputs, None]:
        pixels = observations.numpy()
        rows = self._rows, self._rows + len(pixels)
        if rows not in self._views:
            self._views[rows] = self._view(pixels, *rows)
        parts, outputs = self._views[rows]
        self._compute(pixels, parts)
        return outputs, None

    def _view(
        self, observations: NDArray[Any], first: int, last: int
    ) -> tuple[tuple[NDArray[Any], ...], Outputs]:
        """Return views of rows of what is kept, which gets room for them."""
        if not self._kept or last > len(self._kept[0]):
            outputs = (np.zeros(shape, dtype=np.float32) for shape in ((0, self._num_logits), 0))
            made = tuple(
                np.zeros((last, *like.shape[1:]), dtype=like.dtype)
                for like in (*self._kept_of(observations), *outputs)
            )
            for new, old in zip(made, self._kept, strict=False):
                new[:first] = old[:first]
            self._kept, self._views = made, {}
        parts = tuple(part[first:last] for part in self._kept)
        return parts, Outputs(*map(torch.from_numpy, parts[-2:]))

    @abstractmethod
    def _kept_of(self, observations: NDArray[Any]) -> tuple[NDArray[Any], ...]:
        """Return arrays of the types and shapes, but for the rows, of what the gradient needs."""

    @abstractmethod
    def _compute(self, observations: NDArray[Any], kept: tuple[NDArray[Any], ...]) -> None:
        """Write what the gradient of observations [B, ...] needs, their logits and values last."""


@kernel
def unpack_heads(vector: Any, places: Any, num_logits: int, heads: Any, heads_bias: Any) -> None:
    """Write the heads as one matrix; the last four places are the heads' parameters."""
    features = heads.shape[0]
    policy, policy_bias, value, value_bias = places[-4], places[-3], places[-2], places[-1]
    for j in range(features):
        for a in range(num_logits):
            heads[j, a] = vector[policy + a * features + j]
        heads[j, num_logits] = vector[value + j]
    for a in range(num_logits):
        heads_bias[a] = vector[policy_bias + a]
    heads_bias[num_logits] = vector[value_bias]


@kernel
def heads_forward(features: Any, heads: Any, heads_bias: Any, logits: Any, values: Any) -> None:
    """Write the logits [B, L] and the values [B] of features [B, J]."""
    num_logits = logits.shape[1]
    sums = np.empty(heads.shape[1], dtype=np.float32)
    for b in range(features.shape[0]):
        sums[:] = heads_bias
        add_rows(features[b], heads, sums)
        for a in range(num_logits):
            logits[b, a] = sums[a]
        values[b] = sums[num_logits]


@kernel
def add_rows(factors: Any, rows: Any, sums: Any) -> None:
    """Add the rows [K, M] times their factors [K] to the sums [M]; K is a multiple of 8."""
    for k in range(0, rows.shape[0], 8):
        f0, f1, f2, f3 = factors[k], factors[k + 1], factors[k + 2], factors[k + 3]
        f4, f5, f6, f7 = factors[k + 4], factors[k + 5], factors[k + 6], factors[k + 7]
        r0, r1, r2, r3 = rows[k], rows[k + 1], rows[k + 2], rows[k + 3]
        r4, r5, r6, r7 = rows[k + 4], rows[k + 5], rows[k + 6], rows[k + 7]
        for m in range(len(sums)):
            sums[m] += ((f0 * r0[m] + f1 * r1[m]) + (f2 * r2[m] + f3 * r3[m])) + (
                (f4 * r4[m] + f5 * r5[m]) + (f6 * r6[m] + f7 * r7[m])
            )


@kernel
def heads_backward(
    vector: Any,
    places: Any,
    features: Any,
    logits_grad: Any,
    values_grad: Any,
    features_grad: Any,
    gradient: Any,
) -> None:
    """Write the gradients by the heads' parameters, and that by the features [N, J].

    Given are those by the logits [N, L] and the values [N].
    """
    count, size = features.shape
    num_logits = logits_grad.shape[1]
    policy, policy_bias, value, value_bias = places[-4], places[-3], places[-2], places[-1]
    gradient[policy : value_bias + 1] = 0
    for n in range(count):
        row, grad = features[n], features_grad[n]
        grad[:] = 0
        for a in range(num_logits + 1):
            if a < num_logits:
                by_output, at = logits_grad[n, a], policy + a * size
                gradient[policy_bias + a] += by_output
            else:
                by_output, at = values_grad[n], value
                gradient[value_bias] += by_output
            head, head_grad = vector[at : at + size], gradient[at : at + size]
            for j in range(size):
                grad[j] += by_output * head[j]
            for j in range(size):
                head_grad[j] += by_output * row[j]
