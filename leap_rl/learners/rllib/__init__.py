"""Our encoders and games within RLlib's algorithms, and their agents observed for Leap.

Names are loaded when first used: Ray takes seconds to import.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from leap_rl.learners.rllib.module import LeapEncoderModule, LeapEnv

__all__ = ["LeapEncoderModule", "LeapEnv"]


def __getattr__(name: str) -> object:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.module"), name)
