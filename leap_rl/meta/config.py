"""The meta-learning part of a run's config. Imports no torch: a command line stays quick."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, get_args

if TYPE_CHECKING:
    from leap_rl.meta.gradient_path import Method

LARGEST = 1e6
"""Rates and scales beyond this overflow float32 somewhere along the way."""

_Method = Literal["leap", "maml"]
_Power = Literal[1, 2]
_LossDifference = Literal["next_batch", "same_batch"]
_Optimizer = Literal["adam", "sgd"]


@dataclass(frozen=True)
class MetaConfig:
    """What is learned across tasks, and how the initialization is stepped."""

    method: Literal["leap", "maml"] = "leap"
    """The meta-learning method: `leap` (Flennerhag et al., ICLR 2019), or `maml` (Finn et al., ICML
    2017), which differentiates through all of a task's updates and so takes short supervised ones;
    the options of the gradient path have no effect on it."""

    p: Literal[1, 2] = 2
    """What Leap makes smaller: 2 the energy of the gradient path (the paper's choice for Atari),
    1 its length. The factor p of eq. 8 is kept: the authors' code drops it, so that its rate 0.1
    with the energy is 0.05 here."""

    loss_in_path: bool = True
    """Whether the path runs over the loss surface (the paper's choice) or through the parameters
    alone."""

    loss_scale: float = 1.0
    """The loss enters the path times this, and its term of the meta-gradient times its square. The
    loss is a mean over the batch; the paper gives no scale."""

    stabilizer: bool = True
    """Replace each loss difference by minus its absolute value, so that a loss that rose by chance
    does not push the initialization uphill (the paper's stabilizer mu)."""

    loss_difference: Literal["next_batch", "same_batch"] = "next_batch"
    """A segment's loss difference: `next_batch`, between one update's batch and the next's, at no
    cost (as in the authors' code), or `same_batch`, on one batch, at the cost of a forward pass an
    update."""

    meta_steps: int = 100
    """Steps of the initialization (100 in the paper's Atari experiment)."""

    batch_size: int = 16
    """Tasks whose contributions are averaged for a meta-step (16 in the paper's Atari
    experiment)."""

    meta_lr: float = 1e-3
    """Rate of the outer optimizer. The paper gives none for Atari."""

    optimizer: Literal["adam", "sgd"] = "adam"
    """The outer optimizer. The size of Adam's steps does not depend on the scale of the
    contributions."""

    init: str = "random"
    """What meta-training starts from: `random`, or the initialization.safetensors of a run."""

    def __post_init__(self) -> None:
        """Refuse what is out of range.

        Raises:
            ValueError: names the field, its value and what is allowed.
        """
        for name, allowed in (
            ("method", get_args(_Method)),
            ("p", get_args(_Power)),
            ("loss_difference", get_args(_LossDifference)),
            ("optimizer", get_args(_Optimizer)),
        ):
            value = getattr(self, name)
            if value not in allowed:
                raise ValueError(f"meta.{name} = {value!r}: must be one of {list(allowed)}")
        for name in ("loss_scale", "meta_lr"):
            number = getattr(self, name)
            if not number > 0:
                raise ValueError(f"meta.{name} = {number}: must be greater than 0")
            if number > LARGEST:
                raise ValueError(f"meta.{name} = {number}: must be finite and at most {LARGEST:g}")
        for name in ("meta_steps", "batch_size"):
            count = getattr(self, name)
            if count < 1:
                raise ValueError(f"meta.{name} = {count}: must be at least 1")
        if not self.init:
            raise ValueError("meta.init = '': must be 'random' or a file")

    def build(self) -> Method:
        """The method that these fields describe."""
        if self.method == "maml":
            from leap_rl.meta.maml import Maml

            return Maml()
        from leap_rl.meta.leap import Leap

        return Leap(
            p=self.p,
            loss_in_path=self.loss_in_path,
            stabilizer=self.stabilizer,
            loss_scale=self.loss_scale,
        )
