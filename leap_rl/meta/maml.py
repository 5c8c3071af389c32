"""MAML: the gradient of the last loss through all updates (Finn et al., ICML 2017).

The Leap paper compares itself with it in section 4.1, where tasks are supervised and K = 5. The
method watches the path as every other one does and takes a task's contribution from its end: the
task itself differentiates f(θᴷ) by θ⁰, since it alone can compute its updates anew.

Dimensions: P flattened shared parameters.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from leap_rl.meta.gradient_path import ObservedPath
from leap_rl.meta.vectors import check_vector


@dataclass(frozen=True)
class Maml:
    """The method. The gradient at a path's end must be by the path's start, through all updates."""

    name: ClassVar[str] = "maml"
    needs_end_gradient: ClassVar[bool] = True
    keeps_tasks: ClassVar[bool] = False

    def start(self, theta0: Tensor, *, borrow: bool = False) -> MamlPath:
        """Begin a path at `theta0`, float32 [P], which is copied."""
        return MamlPath(theta0)


class MamlPath(ObservedPath):
    """Keeps the gradient that it is given at the end."""

    def __init__(self, theta0: Tensor) -> None:
        super().__init__(theta0)
        self._end_gradient = torch.zeros_like(self._theta0)
        self._displacement = 0.0

    def finish(
        self,
        theta: Tensor,
        loss: Tensor | float,
        grad: Tensor | None = None,
        *,
        previous_batch_loss: Tensor | float | None = None,
        step_length: float | None = None,
    ) -> None:
        """Take f(θᴷ) and its gradient by θ⁰, float32 [P]."""
        if grad is None:
            raise ValueError("grad: MAML is the gradient at the end, and none was given")
        super().finish(
            theta, loss, grad, previous_batch_loss=previous_batch_loss, step_length=step_length
        )
        self._end_gradient = grad.detach().clone()

    def _extend(
        self,
        theta: Tensor,
        loss: float,
        grad: Tensor | None,
        previous_batch_loss: float | None,
        step_length: float | None,
        where: str,
    ) -> None:
        check_vector("theta", theta, like=self._theta0)
        if grad is not None:
            check_vector("grad", grad, like=self._theta0)
        self._displacement = torch.linalg.vector_norm(
            theta - self._theta0, dtype=torch.float64
        ).item()

    def gradient(self) -> Tensor:
        """d f(θᴷ) / d θ⁰, float32 [P], a fresh tensor; zero before the end is known."""
        return self._end_gradient.clone()

    def figures(self) -> dict[str, float]:
        """The path's `displacement`, |θ − θ⁰|."""
        return {"displacement": self._displacement}

    def state_dict(self) -> dict[str, Tensor]:
        """All that a fresh path from the same theta0 needs, copied."""
        return super().state_dict() | {
            "end_gradient": self._end_gradient.clone(),
            "displacement": torch.tensor(self._displacement, dtype=torch.float64),
        }

    def _load(self, state: Mapping[str, Tensor]) -> None:
        super()._load(state)
        self._end_gradient = state["end_gradient"].clone()
        self._displacement = state["displacement"].item()
