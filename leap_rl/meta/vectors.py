"""Sums, norms and checks of flattened parameter vectors.

Dimensions: P flattened shared parameters, B vectors of a batch.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

# A float32 sum of n equal terms drifts by up to about n * 2**-25 of itself, and the same way in
# every block. The error is to stay below 1e-6; measured on a steady stream whose first terms are
# 1e4 times the rest: 2.7e-6 with 128 segments a block, 6e-7 with 32. The flushes cost 3 %.
SEGMENTS_PER_BLOCK = 32

# Short enough for a float32 sum of squares: one norm over 675,120 equal elements is off by 3e-4.
_NORM_ROW = 256

# A batch of 16 in float64 is 8 MB at a time, whatever the number of parameters.
_GRAM_COLUMNS = 65_536


class NonFiniteError(ValueError):
    """A loss, a parameter or a gradient is NaN or infinite."""


class BlockSum:
    """A sum of many float32 [P] vectors, nearly as exact as in float64 at the cost of float32.

    Terms go into a float32 block that is added to a float64 total whenever it has taken
    `SEGMENTS_PER_BLOCK` of them. Reading adds the two aside, so no bit depends on when it is read.
    """

    def __init__(self, like: Tensor) -> None:
        self._block = torch.zeros_like(like)
        self._total = torch.zeros_like(like, dtype=torch.float64)
        self._in_block = 0

    def add(self, vector: Tensor, *, weight: float) -> None:
        self._block.add_(vector, alpha=weight)
        self._in_block += 1
        if self._in_block == SEGMENTS_PER_BLOCK:
            self._total.add_(self._block)
            self._block.zero_()
            self._in_block = 0

    def value(self) -> Tensor:
        return self._total + self._block

    def state_dict(self, prefix: str) -> dict[str, Tensor]:
        """Copies of all that the sum is made of, their names led by `prefix`."""
        return {
            f"{prefix}.block": self._block.clone(),
            f"{prefix}.total": self._total.clone(),
            f"{prefix}.in_block": torch.tensor(self._in_block),
        }

    def load_state_dict(self, state: Mapping[str, Tensor], prefix: str) -> None:
        self._block.copy_(state[f"{prefix}.block"])
        self._total.copy_(state[f"{prefix}.total"])
        self._in_block = int(state[f"{prefix}.in_block"])


def norm(vector: Tensor) -> float:
    """The Euclidean norm of a contiguous float32 [P], within 1e-6 of itself at any P.

    Squares are summed in float32 within short rows and in float64 across them: a fifth of the time
    of a norm in float64. Not finite where the vector is not, or where a square overflows.
    """
    in_rows = vector.numel() // _NORM_ROW * _NORM_ROW
    row_norms = torch.linalg.vector_norm(vector[:in_rows].view(-1, _NORM_ROW), dim=1)
    rest = torch.linalg.vector_norm(vector[in_rows:])
    return math.hypot(torch.linalg.vector_norm(row_norms, dtype=torch.float64).item(), rest.item())


def dot(first: Tensor, second: Tensor) -> float:
    """The dot product of two contiguous float32 [P], summed as in `norm`.

    In float64, and slower, where a float32 sum overflows though no value does.
    """
    in_rows = first.numel() // _NORM_ROW * _NORM_ROW
    products = first * second
    row_sums = products[:in_rows].view(-1, _NORM_ROW).sum(dim=1)
    total = (row_sums.sum(dtype=torch.float64) + products[in_rows:].sum()).item()
    return total if math.isfinite(total) else (first.double() @ second.double()).item()


def pairwise_cosines(vectors: Sequence[Tensor]) -> Tensor:
    """The cosine of each of B float32 [P] with each, float64 [B, B]; NaN where one of them is 0."""
    gram = torch.zeros(len(vectors), len(vectors), dtype=torch.float64)
    for columns in zip(*(torch.split(vector, _GRAM_COLUMNS) for vector in vectors), strict=True):
        block = torch.stack(columns).double()
        gram += block @ block.T
    norms = gram.diagonal().sqrt()
    return gram / (norms[:, None] * norms)


def check_vector(name: str, vector: Tensor, *, like: Tensor) -> None:
    """ValueError unless `vector` has the shape and the dtype of `like`."""
    if vector.shape != like.shape or vector.dtype != like.dtype:
        raise ValueError(
            f"{name}: must be {like.dtype} {tuple(like.shape)}, "
            f"got {vector.dtype} {tuple(vector.shape)}"
        )


def copy_theta0(theta0: Tensor) -> Tensor:
    """A contiguous copy of an initialization, float32 [P].

    ValueError: not a float32 vector. NonFiniteError: a parameter is NaN or infinite.
    """
    if theta0.dtype != torch.float32 or theta0.ndim != 1 or theta0.numel() == 0:
        raise ValueError(
            f"theta0: must be a float32 vector [P], got {theta0.dtype} {tuple(theta0.shape)}"
        )
    if not torch.isfinite(theta0).all():
        raise NonFiniteError("theta0 is not finite")
    return theta0.detach().clone(memory_format=torch.contiguous_format)


def check_finite(name: str, vector: Tensor, where: str) -> None:
    """NonFiniteError if `vector` holds a NaN or an infinity.

    A sum is finite only if every term is, and takes a thirtieth of the time of `isfinite`, which
    therefore runs only to tell a sum that overflowed.
    """
    if not math.isfinite(vector.sum().item()) and not torch.isfinite(vector).all():
        raise NonFiniteError(f"{name} at {where} is not finite")


def finite_scalar(name: str, value: Tensor | float, where: str) -> float:
    """`value` as a float; NonFiniteError if it is NaN or infinite."""
    scalar = float(value.detach()) if isinstance(value, Tensor) else float(value)
    if not math.isfinite(scalar):
        raise NonFiniteError(f"{name} at {where} is {scalar}")
    return scalar


def check_state(state: Mapping[str, Tensor], *, like: Mapping[str, Tensor]) -> None:
    """ValueError unless `state` has the names, shapes and dtypes of `like`."""
    if state.keys() != like.keys():
        missing, unknown = sorted(like.keys() - state.keys()), sorted(state.keys() - like.keys())
        raise ValueError(f"state: lacks {missing} and has no use for {unknown}")
    for name, tensor in like.items():
        check_vector(f"state[{name!r}]", state[name], like=tensor)
