"""Options as plain values, those that define a run, and their fingerprint."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection, Mapping
from dataclasses import asdict
from typing import Any

from leap_rl.core.parsing import flatten
from leap_rl.learners.registry import declared
from leap_rl.runs.config import Config

OPERATIONAL = frozenset({"run_dir", "runtime", "tracking", "meta.meta_steps", "task.data", "clips"})
"""Options, or groups of them, that change no bit of what is computed. Data has its own digest."""


def to_mapping(config: Config) -> dict[str, Any]:
    """Return the options as nested plain values, as YAML and the command line spell them.

    What a preset leaves open is spelled out, and what has no effect is left out.
    """
    options = asdict(config)
    options["task"]["atari"] = config.task.atari.resolved()
    for name in ("resolved_games", *config.task.without_effect):
        del options["task"][name]
    learner = declared(config.task, config.agent)
    ignored = () if learner is None else learner.ignored()
    for name in {*ignored, *config.agent.without_effect}:
        del options["agent"][name]
    return options


def defining_options(config: Config) -> dict[str, Any]:
    """Return what defines the run by dotted name, the games spelled out."""
    flat = flatten(to_mapping(config))
    flat["task.games"] = list(config.task.resolved_games)
    return {
        name: value
        for name, value in flat.items()
        if name not in OPERATIONAL and name.partition(".")[0] not in OPERATIONAL
    }


def fingerprint(
    config: Config,
    init_sha256: str | None,
    *,
    origin: Mapping[str, Any] | None = None,
    without: Collection[str] = (),
) -> str:
    """Return the SHA-256, in hexadecimal, of what defines the run.

    Args:
        config: The run's config.
        init_sha256: Of the file that the encoder starts from, which counts instead of its path,
            or of all those files; none for a random start.
        origin: What says by its content which checkpoint a fork starts from; none for other runs.
        without: Options, by dotted name, that do not count: those that the leap_rl which made the
            run did not know.
    """
    options = defining_options(config)
    if init_sha256 is not None:
        options[config.init_option] = f"sha256:{init_sha256}"
    options = {name: value for name, value in options.items() if name not in without}
    document = {"command": config.command, "options": options}
    if origin is not None:
        document["origin"] = dict(origin)
    return hashlib.sha256(json.dumps(document, sort_keys=True).encode()).hexdigest()
