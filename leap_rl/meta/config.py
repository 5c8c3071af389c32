"""Config of meta-learning. Imports no torch, so that the command line starts quickly."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, Final, Literal, get_args, get_origin, get_type_hints

if TYPE_CHECKING:
    from leap_rl.meta.gradient_path import Method

LARGEST = 1e6
"""Rates and scales beyond this overflow float32 somewhere along the way."""

OPTIONS_OF: Final[Mapping[str, tuple[str, ...]]] = {
    "leap": (
        *("p", "metric", "task_unit", "loss_in_path"),
        *("loss_scale", "stabilizer", "loss_difference"),
    ),
    "fomaml": ("end_batches",),
    "pretraining": ("updates_per_round",),
}
"""Options that have an effect on one method alone."""


@dataclass(frozen=True)
class MetaConfig:
    """What is learned across tasks, and how the initialization is stepped."""

    method: Literal["leap", "reptile", "fomaml", "maml", "pretraining"] = "leap"
    """What a task contributes to the meta-gradient. leap: the gradient of its path's length or
    energy (Flennerhag et al., ICLR 2019). reptile: where its agent started less where it ended
    (Nichol et al. 2018). fomaml: the gradient of the loss where it ended (Finn et al. 2017, first
    order). maml: that gradient by where it started, through all of its updates (second order), for
    short supervised tasks. pretraining: as reptile, but each game's agent continues from round to
    round, heads and all, and the next encoder is the mean of theirs."""

    p: Literal[1, 2] = 2
    """What Leap makes smaller: 2 the energy of the gradient path (the paper's choice for Atari),
    1 its length. The factor p of eq. 8 is kept: the authors' code drops it, so that its rate 0.1
    with the energy is 0.05 here. This and the next six options are of method leap alone; other
    methods leave them out."""

    metric: Literal["auto", "euclidean", "optimizer"] = "auto"
    """How Leap measures parameters. euclidean: eq. 8 as printed. optimizer: in the metric in which
    the agent's optimizer descends steepest, where a segment's squared length is the decrease of the
    loss that the gradient predicts (docs/methods.md). auto, resolved when a run is made: euclidean
    for tasks learned by plain gradient descent, for which the two agree; optimizer for agents."""

    task_unit: Literal["none", "path"] = "path"
    """The unit of a task's distance, so that a game with large rewards does not own the mean. path,
    in the optimizer's metric alone: the mean weight of the task's own segments; its contribution
    then is as long as Reptile's, times p. none: as in the paper."""

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

    optimizer: Literal["auto", "sgd", "adam"] = "auto"
    """The outer optimizer; not given in the paper for Atari. auto: sgd where a contribution is an
    average of the agents' own steps, so that its rate has a meaning: leap with metric optimizer and
    task_unit path, reptile, pretraining. adam for the others; one spike shortens its steps for
    long, as it divides by a mean square that decays by 0.999."""

    meta_lr: float | None = None
    """Rate of the outer optimizer; not given in the paper for Atari. None: with sgd the full step
    to the mean of the agents, which is 1/p for leap and 1 for reptile and pretraining; 0.001 with
    adam."""

    close_after_s: float | None = None
    """Close a meta-step that has been open for this many seconds: tasks that are not complete count
    with their sums so far, and those that have none are left out. The result then depends on how
    fast the machines are, so that the promise of the same bits does not hold. Not with maml or
    pretraining. None: never."""

    end_batches: int = 1
    """With fomaml, the batches at a task's end over which its gradient is averaged; one batch of an
    agent is mostly noise."""

    updates_per_round: int | None = None
    """With pretraining, the updates of a game's agent in a round, which is a meta-step here: 1 is
    synchronous multi-task SGD. It takes the place of task.agent_steps,
    task.omniglot.updates, or task.images' epochs. None takes what these say."""

    init: str = "random"
    """What meta-training starts from: `random`, RUN, RUN@12 or RUN@best, pretrained:NAME,
    hf://USER/REPO or hf://USER/REPO@REVISION, a folder that leap-rl export wrote, or a file. After
    any of these @mix=0.5 starts from half of it and half of the random one."""

    def __post_init__(self) -> None:
        for name, allowed in _CHOICES.items():
            if (value := getattr(self, name)) not in allowed:
                raise ValueError(f"meta.{name} = {value!r}: must be one of {list(allowed)}")
        for name in ("loss_scale", "meta_lr"):
            number = getattr(self, name)
            if number is None:
                continue
            if not number > 0:
                raise ValueError(f"meta.{name} = {number}: must be greater than 0")
            if number > LARGEST:
                raise ValueError(f"meta.{name} = {number}: must be finite and at most {LARGEST:g}")
        for name in ("meta_steps", "batch_size", "end_batches"):
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
        # Options of other methods have no effect, so they are set to their defaults.
        for method, options in OPTIONS_OF.items():
            for one in fields(self):
                if method != self.method and one.name in options:
                    object.__setattr__(self, one.name, one.default)

    @property
    def carries_agents(self) -> bool:
        """Whether a game's agent is carried over from round to round."""
        return self.method == "pretraining"

    @property
    def differentiates_updates(self) -> bool:
        return self.method == "maml"

    def resolved(self, *, plain_descent: bool) -> MetaConfig:
        """Return the config with each `auto` replaced by what it means."""
        metric = self.metric
        if self.method == "leap" and metric == "auto":
            metric = "euclidean" if plain_descent else "optimizer"
        task_unit = self.task_unit
        if metric == "euclidean" and task_unit == "path":
            task_unit = "none"
        # Plain SGD's rate has a meaning where a contribution is an average of the agent's steps.
        averages_steps = self.method in ("reptile", "pretraining") or (
            metric == "optimizer" and task_unit == "path"
        )
        optimizer = self.optimizer
        if optimizer == "auto":
            optimizer = "sgd" if averages_steps else "adam"
        meta_lr = self.meta_lr
        if meta_lr is None:
            full_step = 1.0 / self.p if self.method == "leap" else 1.0
            meta_lr = 1e-3 if optimizer == "adam" else full_step
        return replace(
            self, metric=metric, task_unit=task_unit, optimizer=optimizer, meta_lr=meta_lr
        )

    @property
    def outer(self) -> tuple[Literal["adam", "sgd"], float]:
        assert self.optimizer != "auto", "MetaConfig.resolved comes first"
        assert self.meta_lr is not None, "MetaConfig.resolved comes first"
        return self.optimizer, self.meta_lr

    def build(self) -> Method:
        from leap_rl import meta

        if self.method == "leap":
            assert self.metric != "auto", "MetaConfig.resolved comes first"
            return meta.Leap(
                p=self.p,
                metric=self.metric,
                task_unit=self.task_unit == "path",
                loss_in_path=self.loss_in_path,
                stabilizer=self.stabilizer,
                loss_scale=self.loss_scale,
            )
        if self.method == "fomaml":
            return meta.FOMAML(end_batches=self.end_batches)
        if self.method == "maml":
            return meta.MAML()
        return meta.Pretraining() if self.method == "pretraining" else meta.Reptile()


_CHOICES = {
    name: get_args(hint)
    for name, hint in get_type_hints(MetaConfig).items()
    if get_origin(hint) is Literal
}
