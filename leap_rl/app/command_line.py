"""The command that makes a run, from its config."""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from leap_rl.config import Config, flatten, to_mapping
from leap_rl.meta.config import MetaConfig

_LEAST: dict[str, dict[str, Any]] = {"evaluate": {"init": ["-"]}}
"""What a config cannot be made without."""


def command_of(config: Config) -> str:
    """Return a command whose config is this one; where it is kept, shown and run is left out."""
    defaults = _defaults(type(config))
    words: list[str] = []
    for name, value in flatten(to_mapping(config)).items():
        if name.partition(".")[0] in ("run_dir", "tracking", "runtime"):
            continue
        if value != defaults.get(name):
            words += [f"--{name}", _spelled(value)]
    return shlex.join(["leap-rl", config.command, *words])


def _defaults(kind: type[Config]) -> Mapping[str, Any]:
    default = kind(**_LEAST.get(kind.command, {}))
    # What has no effect with the default's kind of tasks is left out of its mapping.
    defaults = {**flatten(asdict(default)), **flatten(to_mapping(default))}
    # What is resolved by other options has its default before that.
    return {**defaults, **flatten({"meta": asdict(MetaConfig())})}


def _spelled(value: object) -> str:
    return value if isinstance(value, str) else json.dumps(value)
