"""The meta-learning part of a run's config. Imports no torch: a command line stays quick."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Literal, get_args

if TYPE_CHECKING:
    from leap_rl.meta.gradient_path import Method

LARGEST = 1e6
"""Rates and scales beyond this overflow float32 somewhere along the way."""

_Method = Literal["leap", "reptile", "fomaml", "maml", "finetune"]
_Power = Literal[1, 2]
_LossDifference = Literal["next_batch", "same_batch"]
_Optimizer = Literal["adam", "sgd"]

_OF_LEAP = ("p", "loss_in_path", "loss_scale", "stabilizer", "loss_difference")

_WITHOUT_EFFECT = {
    "leap": ("updates_per_round",),
    "reptile": (*_OF_LEAP, "updates_per_round"),
    "fomaml": (*_OF_LEAP, "updates_per_round"),
    "maml": (*_OF_LEAP, "updates_per_round"),
    "finetune": (*_OF_LEAP, "optimizer", "meta_lr"),
}
"""By method, the options that say nothing about it: they are put back to their defaults."""


@dataclass(frozen=True)
class MetaConfig:
    """What is learned across tasks, and how the initialization is stepped."""

    method: Literal["leap", "reptile", "fomaml", "maml", "finetune"] = "leap"
    """What a task contributes to the meta-gradient. leap: the gradient of its path's length or
    energy (Flennerhag et al., ICLR 2019). reptile: where its agent started less where it ended
    (Nichol et al. 2018). fomaml: the gradient of the loss where it ended (Finn et al. 2017, first
    order). maml: that gradient by where it started, through all of its updates (second order), for
    short supervised tasks. finetune: as reptile, but each game's agent goes on from round to round,
    heads and all, and the mean of their encoders is the next one (SGD with rate 1)."""

    p: Literal[1, 2] = 2
    """What Leap makes smaller: 2 the energy of the gradient path (the paper's choice for Atari),
    1 its length. The factor p of eq. 8 is kept: the authors' code drops it, so that its rate 0.1
    with the energy is 0.05 here. This and the next four options are of method leap alone; other
    methods leave them out."""

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

    close_after_s: float | None = None
    """Close a meta-step that has been open for this many seconds: tasks that are not complete count
    with their sums so far, and those that have none are left out. The result then depends on how
    fast the machines are, so that the promise of the same bits does not hold. Not with maml or
    finetune. None: never."""
    updates_per_round: int | None = None
    """With finetune, the updates of a game's agent in a round, which is a meta-step here: 1 is
    synchronous multi-task SGD. It takes the place of task.agent_steps, or of
    task.omniglot.updates. None takes what these say."""

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
        if self.close_after_s is not None and not self.close_after_s > 0:
            raise ValueError(
                f"meta.close_after_s = {self.close_after_s}: must be greater than 0, or null"
            )
        if self.updates_per_round is not None and self.updates_per_round < 1:
            raise ValueError(
                f"meta.updates_per_round = {self.updates_per_round}: must be at least 1, or null"
            )
        if not self.init:
            raise ValueError("meta.init = '': must be 'random' or a file")
        # Another method is one word: what a config says for another one is no part of the run.
        for one in fields(self):
            if one.name in _WITHOUT_EFFECT[self.method]:
                object.__setattr__(self, one.name, one.default)

    @property
    def outer(self) -> tuple[Literal["adam", "sgd"], float]:
        """The outer optimizer and its rate."""
        return ("sgd", 1.0) if self.method == "finetune" else (self.optimizer, self.meta_lr)

    def build(self) -> Method:
        """The method that these fields describe."""
        if self.method == "reptile":
            from leap_rl.meta.reptile import Reptile

            return Reptile()
        if self.method == "fomaml":
            from leap_rl.meta.fomaml import FOMAML

            return FOMAML()
        if self.method == "maml":
            from leap_rl.meta.maml import MAML

            return MAML()
        if self.method == "finetune":
            from leap_rl.meta.finetune import Finetune

            return Finetune()
        from leap_rl.meta.leap import Leap

        return Leap(
            p=self.p,
            loss_in_path=self.loss_in_path,
            stabilizer=self.stabilizer,
            loss_scale=self.loss_scale,
        )
