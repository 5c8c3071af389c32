"""One meta-step: average the contributions of a batch of tasks and step the initialization.

Dimensions: P flattened shared parameters.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Literal, NamedTuple

import torch
from torch import Tensor

from leap_rl.meta.vectors import NonFiniteError, check_state, check_vector, copy_theta0


class OuterStepResult(NamedTuple):
    """What a meta-step did."""

    theta: Tensor
    """The new initialization, float32 [P], a fresh copy."""
    mean: Tensor
    """The averaged contribution, float32 [P]."""
    step_norm: float
    """Euclidean norm of the change of the initialization."""
    mean_norm: float
    """Euclidean norm of the averaged contribution."""


class OuterStep:
    """Holds the initialization and the outer optimizer's state (the paper's eq. 7).

    Args:
        theta0: float32 [P], the initialization to start from, copied.
        optimizer: `adam` (torch's defaults but for the rate) or `sgd` (no momentum).
        meta_lr: the outer rate.

    Raises:
        ValueError: an unknown optimizer, a rate that is not greater than 0, not a float32 vector.
        NonFiniteError: theta0 is not finite.
    """

    def __init__(
        self, theta0: Tensor, *, optimizer: Literal["adam", "sgd"], meta_lr: float
    ) -> None:
        if not (math.isfinite(meta_lr) and meta_lr > 0):
            raise ValueError(f"meta_lr = {meta_lr}: must be finite and greater than 0")
        self._theta = copy_theta0(theta0)
        self._meta_lr = meta_lr
        self._state: dict[str, Tensor] = {}
        if optimizer == "adam":
            self._state = {
                "step": torch.tensor(0.0, dtype=torch.float32),
                "exp_avg": torch.zeros_like(self._theta),
                "exp_avg_sq": torch.zeros_like(self._theta),
            }
        elif optimizer != "sgd":
            raise ValueError(f"optimizer = {optimizer!r}: must be 'adam' or 'sgd'")

    @property
    def theta(self) -> Tensor:
        """The initialization as it stands, float32 [P], a fresh copy."""
        return self._theta.clone()

    def step(self, contributions: Sequence[Tensor]) -> OuterStepResult:
        """Average `contributions`, each float32 [P], in float64 and the order given, and step.

        Raises:
            ValueError: no contribution, or one of another shape or dtype.
            NonFiniteError: the mean, or the initialization after the step, is not finite. Nothing
                has changed then.
        """
        mean = _mean(contributions, like=self._theta)
        before, state = self._theta.clone(), self.state_dict()
        if self._state:
            _step_adam(self._theta, mean, self._state, self._meta_lr)
        else:
            self._theta.add_(mean, alpha=-self._meta_lr)
        if not torch.isfinite(self._theta).all():
            self._theta.copy_(before)
            self.load_state_dict(state)
            raise NonFiniteError("the stepped initialization is not finite; lower meta_lr")
        return OuterStepResult(
            theta=self.theta,
            mean=mean,
            step_norm=torch.linalg.vector_norm(self._theta.double() - before.double()).item(),
            mean_norm=torch.linalg.vector_norm(mean, dtype=torch.float64).item(),
        )

    def state_dict(self) -> dict[str, Tensor]:
        """Adam's `step`, `exp_avg`, `exp_avg_sq`, copied; nothing for SGD. Without theta."""
        return {name: value.clone() for name, value in self._state.items()}

    def load_state_dict(self, state: Mapping[str, Tensor]) -> None:
        """Copy in what `state_dict` gave; ValueError if it is another optimizer's or size's."""
        check_state(state, like=self._state)
        self._state = {name: value.clone() for name, value in state.items()}


def _step_adam(theta: Tensor, grad: Tensor, state: Mapping[str, Tensor], meta_lr: float) -> None:
    """Change `theta` and `state` as `torch.optim.Adam` does, to the same bits.

    The first optimizer of torch's that a process makes imports torch's compiler: seconds of each
    start, and 100 MB.
    """
    beta1, beta2, epsilon = 0.9, 0.999, 1e-8
    state["step"].add_(1)
    state["exp_avg"].lerp_(grad, 1 - beta1)
    state["exp_avg_sq"].mul_(beta2).addcmul_(grad, grad, value=1 - beta2)
    step = state["step"].item()
    root = (state["exp_avg_sq"].sqrt() / (1 - beta2**step) ** 0.5).add_(epsilon)
    theta.addcdiv_(state["exp_avg"], root, value=-meta_lr / (1 - beta1**step))


def _mean(contributions: Sequence[Tensor], *, like: Tensor) -> Tensor:
    if not contributions:
        raise ValueError("contributions: a meta-step needs at least one")
    total = torch.zeros_like(like, dtype=torch.float64)
    for slot, contribution in enumerate(contributions):
        check_vector(f"contributions[{slot}]", contribution, like=like)
        total += contribution
    mean = (total / len(contributions)).to(torch.float32)
    if not torch.isfinite(mean).all():
        slots = [slot for slot, c in enumerate(contributions) if not torch.isfinite(c).all()]
        raise NonFiniteError(f"the mean contribution is not finite; neither are slots {slots}")
    return mean
