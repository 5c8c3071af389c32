"""A protocol of meta-training: its runs and evaluations, each a cell."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from benchmarks.harness.cells import Cell
from leap_rl.core.parsing import flatten

Protocol = Mapping[str, Any]


def read_protocol(path: Path) -> Protocol:
    """Read a protocol.

    Raises:
        ValueError: It cannot be read, or lacks a part.
    """
    try:
        protocol = yaml.safe_load(path.read_text())
    except (OSError, yaml.YAMLError) as error:
        raise ValueError(f"{path}: cannot be read as a protocol: {error}") from None
    parts = ("question", "train", "pools", "variants", "seeds")
    missing = [part for part in parts if not (isinstance(protocol, dict) and part in protocol)]
    if missing:
        raise ValueError(f"{path}: lacks {', '.join(missing)}; see the script's --help")
    return dict(protocol)


def all_cells(protocol: Protocol) -> list[Cell]:
    """Return all cells; an evaluation needs its training cells finished."""
    return [*training_cells(protocol), *evaluation_cells(protocol)]


def training_cells(protocol: Protocol) -> list[Cell]:
    """Return the protocol's meta-training runs, all of one seed before any of the next."""
    return [
        {
            "pool": pool,
            "variant": variant,
            "seed": seed,
            "options": options_of(protocol, pool) | (options or {}),
        }
        for seed in protocol["seeds"]
        for pool in protocol["pools"]
        for variant, options in protocol["variants"].items()
    ]


def options_of(protocol: Protocol, pool: str) -> dict[str, Any]:
    """Return the options, dotted, that all variants have in a pool."""
    own = (protocol.get("overrides") or {}).get(pool, {})
    return {**flatten(protocol["train"]), "task.games": protocol["pools"][pool], **own}


def evaluation_cells(protocol: Protocol) -> list[Cell]:
    """Return the protocol's evaluations, one a pool, each of all runs of its variants."""
    asked = dict(protocol.get("evaluation") or {})
    if not asked:
        return []
    games = asked.pop("games", None) or {}
    return [
        {
            "pool": pool,
            "evaluation": {"agent_steps": options_of(protocol, pool)["task.agent_steps"]}
            | asked
            | {"games": games.get(pool, own)},
            "runs": {
                variant: [
                    {"options": cell["options"], "seed": cell["seed"]}
                    for cell in training_cells(protocol)
                    if (cell["pool"], cell["variant"]) == (pool, variant)
                ]
                for variant in protocol["variants"]
            },
        }
        for pool, own in protocol["pools"].items()
    ]
