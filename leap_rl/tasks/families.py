"""The families of tasks, by `task.kind`. Importing this costs no import of torch."""

from __future__ import annotations

from functools import cache
from importlib.metadata import EntryPoint, entry_points
from typing import Final

from leap_rl.learners.rllib_config import RllibFamily
from leap_rl.tasks.atari import AtariFamily
from leap_rl.tasks.catch import CatchFamily
from leap_rl.tasks.family import Family
from leap_rl.tasks.gymnasium import GymnasiumFamily
from leap_rl.tasks.omniglot.family import OmniglotFamily
from leap_rl.tasks.quadratic import QuadraticFamily

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

OPTIONS: tuple[str, ...] = (
    *dict.fromkeys(option for family in FAMILIES.values() for option in family.options),
    "options",
)
"""Options of `TaskConfig` that have an effect on some families alone."""

ENTRY_POINTS: Final = "leap_rl.task_families"
"""The group of entry points by which installed packages bring families of their own."""


def family_of(kind: str) -> Family:
    """Return leap_rl's or an installed package's family by name; ValueError if none."""
    return FAMILIES[kind] if kind in FAMILIES else _installed(kind)


def package_of(kind: str) -> tuple[str, str] | None:
    """Return the name and version of the package that brings a family, if it is not leap_rl."""
    point = None if kind in FAMILIES else _entry_point(kind)
    if point is None or point.dist is None:
        return None
    return point.dist.name, point.dist.version


def _entry_point(kind: str) -> EntryPoint | None:
    return next(iter(entry_points(group=ENTRY_POINTS, name=kind)), None)


@cache
def _installed(kind: str) -> Family:
    point = _entry_point(kind)
    if point is None:
        others = sorted(entry_points(group=ENTRY_POINTS).names)
        raise ValueError(
            f"task.kind = {kind!r}: must be one of {', '.join([*FAMILIES, *others])}; a family of "
            f"another package is there once that is installed (entry point {ENTRY_POINTS})"
        )
    try:
        family = point.load()()
    except Exception as error:
        reason = " ".join(f"{type(error).__name__}: {error}".split())
        raise ValueError(f"task.kind = {kind}: cannot load {point.value}: {reason}") from error
    if not isinstance(family, Family) or family.kind != kind:
        raise ValueError(
            f"task.kind = {kind}: {point.value} must be a leap_rl.tasks.family.Family of that kind"
        )
    return family
