"""A point of a gradient path: what a task knows of the shared parameters between two updates."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor


@dataclass(frozen=True, kw_only=True, slots=True)
class Point:
    """Shared parameters, and the loss there.

    Who observes it may keep `theta` and `grad` by reference: they stay as they are until the next
    point has been observed.
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
    """|theta - last theta|, from a caller who knows it and so saves passes over memory: that over
    the last point, and the one that looks for NaN in `grad`, which is then found in the length of
    the step that it leads to, at the next point."""
