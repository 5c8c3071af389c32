"""A point of a gradient path: shared parameters and loss between two updates."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor


@dataclass(frozen=True, kw_only=True, slots=True)
class Point:
    """Shared parameters, and the loss there.

    An observer may keep `theta` and `grad` by reference: they stay as they are until the next point
    has been observed.
    """

    theta: Tensor
    """Shared parameters, float32 [P]."""
    loss: Tensor | float
    """The loss at `theta` on the batch of the update to come, 0-d."""
    grad: Tensor | None = None
    """Its gradient, float32 [P]; some methods do without."""
    previous_batch_loss: Tensor | float | None = None
    """The loss at `theta` on the batch of the update just done, 0-d. Given it, the closed segment's
    loss difference is taken on that one batch; without it, between one batch and the next."""
    step_length: float | None = None
    """|theta - last theta|, if the caller knows it. It saves a pass over the last point, and the
    search for NaN in `grad`: a NaN there shows in the next point's step length."""
