"""Leap, its relatives and the outer step, in pure torch: usable in any PyTorch training loop.

Names are loaded when first used, so that the config alone can be read without torch.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from leap_rl.meta.config import MetaConfig
    from leap_rl.meta.gradient_path import GradientPath, Method, NoMethod, NullPath
    from leap_rl.meta.leap import Leap, LeapPath
    from leap_rl.meta.outer_step import OuterStep, OuterStepResult
    from leap_rl.meta.relatives import (
        FOMAML,
        MAML,
        DisplacementPath,
        FOMAMLPath,
        Pretraining,
        Reptile,
    )
    from leap_rl.meta.vectors import NonFiniteError

__all__ = [
    "FOMAML",
    "MAML",
    "DisplacementPath",
    "FOMAMLPath",
    "GradientPath",
    "Leap",
    "LeapPath",
    "MetaConfig",
    "Method",
    "NoMethod",
    "NonFiniteError",
    "NullPath",
    "OuterStep",
    "OuterStepResult",
    "Pretraining",
    "Reptile",
]

# MetaConfig's module comes first: importing that alone needs no torch.
_MODULES = ("config", "gradient_path", "leap", "outer_step", "relatives", "vectors")


def __getattr__(name: str) -> object:
    if name in __all__:
        for module in map(import_module, (f"{__name__}.{each}" for each in _MODULES)):
            if hasattr(module, name):
                return getattr(module, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
