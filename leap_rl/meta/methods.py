"""The methods by name: what each takes from the config, and how it is made.

A method is a module of its own and an entry here. Importing this costs no import of torch.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from leap_rl.meta.config import MetaConfig
    from leap_rl.meta.gradient_path import Method


@dataclass(frozen=True, kw_only=True)
class MethodEntry:
    """A method, as the config knows it."""

    make: Callable[[MetaConfig], Method]
    """Makes it of a resolved config."""
    options: tuple[str, ...] = ()
    """Those of `SPECIAL` that have an effect on it."""
    averages_steps: bool = False
    """Whether a contribution is an average of the agent's own steps, so that plain SGD's rate has a
    meaning; Leap's is in the optimizer's metric and in a task's own unit alone."""
    keeps_tasks: bool = False
    """Whether a game's agent is carried over from round to round."""
    differentiates_updates: bool = False
    """Whether it takes the gradient through the task's updates."""


def _leap(config: MetaConfig) -> Method:
    from leap_rl.meta.leap import Leap

    assert config.metric != "auto", "MetaConfig.resolved comes first"
    return Leap(
        p=config.p,
        metric=config.metric,
        task_unit=config.task_unit == "path",
        loss_in_path=config.loss_in_path,
        stabilizer=config.stabilizer,
        loss_scale=config.loss_scale,
    )


def _reptile(config: MetaConfig) -> Method:
    from leap_rl.meta.reptile import Reptile

    return Reptile()


def _fomaml(config: MetaConfig) -> Method:
    from leap_rl.meta.fomaml import FOMAML

    return FOMAML(end_batches=config.end_batches)


def _maml(config: MetaConfig) -> Method:
    from leap_rl.meta.maml import MAML

    return MAML()


def _finetune(config: MetaConfig) -> Method:
    from leap_rl.meta.finetune import Finetune

    return Finetune()


_OF_LEAP = (
    "p",
    "metric",
    "task_unit",
    "loss_in_path",
    "loss_scale",
    "stabilizer",
    "loss_difference",
)

METHODS: Final[Mapping[str, MethodEntry]] = {
    "leap": MethodEntry(make=_leap, options=_OF_LEAP),
    "reptile": MethodEntry(make=_reptile, averages_steps=True),
    "fomaml": MethodEntry(make=_fomaml, options=("end_batches",)),
    "maml": MethodEntry(make=_maml, differentiates_updates=True),
    "finetune": MethodEntry(
        make=_finetune, options=("updates_per_round",), averages_steps=True, keeps_tasks=True
    ),
}

SPECIAL: Final = frozenset(name for entry in METHODS.values() for name in entry.options)
"""Options of `MetaConfig` that have an effect on some methods alone."""
