"""The configs of the commands, composed of what the packages own; from YAML and command lines.

Fields are *defining* or *operational*. The defining ones say what is computed: the initialization
after a meta-step is a function of them alone, and the fingerprint is their SHA-256. The
operational ones say where, how long and how visibly.
"""

from leap_rl.config.commands import COMMANDS, Config, EvaluateConfig, LearnConfig, TrainConfig
from leap_rl.config.fingerprint import (
    OPERATIONAL,
    defining_options,
    fingerprint,
    init_of,
    to_mapping,
)
from leap_rl.config.validation import ValidationConfig
from leap_rl.core.parsing import flatten

__all__ = [
    "COMMANDS",
    "OPERATIONAL",
    "Config",
    "EvaluateConfig",
    "LearnConfig",
    "TrainConfig",
    "ValidationConfig",
    "defining_options",
    "fingerprint",
    "flatten",
    "init_of",
    "to_mapping",
]
