"""The families of tasks, by `task.kind`. Importing this costs no import of torch."""

from __future__ import annotations

from leap_rl.tasks.atari import AtariFamily
from leap_rl.tasks.catch import CatchFamily
from leap_rl.tasks.family import Family
from leap_rl.tasks.gymnasium import GymnasiumFamily
from leap_rl.tasks.omniglot.family import OmniglotFamily
from leap_rl.tasks.quadratic.family import QuadraticFamily
from leap_rl.tasks.rllib import RllibFamily

FAMILIES: dict[str, Family] = {
    family.kind: family
    for family in (
        AtariFamily(),
        CatchFamily(),
        QuadraticFamily(),
        OmniglotFamily(),
        GymnasiumFamily(),
        RllibFamily(),
    )
}

OPTIONS: tuple[str, ...] = tuple(
    dict.fromkeys(option for family in FAMILIES.values() for option in family.options)
)
"""Options of `TaskConfig` that have an effect on some families alone."""
