"""Leap, its relatives and the outer step, in pure torch: usable in any PyTorch training loop.

Names are loaded when first used, so that the config alone can be read without torch.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from leap_rl.meta.config import MetaConfig
    from leap_rl.meta.finetune import Finetune
    from leap_rl.meta.fomaml import FOMAML, FOMAMLPath
    from leap_rl.meta.gradient_path import GradientPath, Method, NoMethod, NullPath
    from leap_rl.meta.leap import Leap, LeapPath
    from leap_rl.meta.maml import MAML
    from leap_rl.meta.outer_step import OuterStep, OuterStepResult
    from leap_rl.meta.reptile import DisplacementPath, Reptile
    from leap_rl.meta.vectors import NonFiniteError

__all__ = [
    "FOMAML",
    "MAML",
    "DisplacementPath",
    "FOMAMLPath",
    "Finetune",
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
    "Reptile",
]

_MODULE_OF = {
    "DisplacementPath": "reptile",
    "FOMAML": "fomaml",
    "FOMAMLPath": "fomaml",
    "Finetune": "finetune",
    "GradientPath": "gradient_path",
    "Leap": "leap",
    "LeapPath": "leap",
    "MAML": "maml",
    "MetaConfig": "config",
    "Method": "gradient_path",
    "NoMethod": "gradient_path",
    "NonFiniteError": "vectors",
    "NullPath": "gradient_path",
    "OuterStep": "outer_step",
    "OuterStepResult": "outer_step",
    "Reptile": "reptile",
}


def __getattr__(name: str) -> object:
    if name not in _MODULE_OF:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_MODULE_OF[name]}"), name)
