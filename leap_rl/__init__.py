"""leap_rl: learn the weights that agents on new games should start from, and what that saves.

The method is Leap (Flennerhag et al., "Transferring Knowledge across Learning Processes",
ICLR 2019). ``leap_rl.meta`` holds it for use in any PyTorch loop; ``leap_rl.train`` and
``leap-rl --help`` run it at scale.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from leap_rl.core.errors import RunFailedError
    from leap_rl.core.version import __version__
    from leap_rl.runs.api import (
        Evaluation,
        Run,
        StopRun,
        evaluate,
        learn,
        load_encoder,
        resume,
        train,
    )
    from leap_rl.runs.config import EvaluateConfig, LearnConfig, TrainConfig
    from leap_rl.sharing import pretrained
    from leap_rl.studies.api import Study, study
    from leap_rl.studies.config import StudyConfig

__all__ = [
    "EvaluateConfig",
    "Evaluation",
    "LearnConfig",
    "Run",
    "RunFailedError",
    "StopRun",
    "Study",
    "StudyConfig",
    "TrainConfig",
    "__version__",
    "evaluate",
    "learn",
    "load_encoder",
    "pretrained",
    "resume",
    "study",
    "train",
]

_HOMES = {
    "EvaluateConfig": "leap_rl.runs.config",
    "LearnConfig": "leap_rl.runs.config",
    "TrainConfig": "leap_rl.runs.config",
    "Study": "leap_rl.studies.api",
    "StudyConfig": "leap_rl.studies.config",
    "study": "leap_rl.studies.api",
    "RunFailedError": "leap_rl.core.errors",
    "__version__": "leap_rl.core.version",
}


def __getattr__(name: str) -> Any:
    """Import what is public when it is used, so that ``leap_rl.meta`` takes PyTorch alone."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    if name == "pretrained":
        return import_module("leap_rl.sharing.pretrained")
    return getattr(import_module(_HOMES.get(name, "leap_rl.runs.api")), name)


def __dir__() -> list[str]:
    return __all__
