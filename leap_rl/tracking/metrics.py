"""Rows of metrics: flat mappings from key to plain number, each on one axis.

The axis is `meta_step` for meta-training, `agent_steps` or `examples` for agents that learn alone.
Keys are `<area>/<name>[/<stat>]`; `docs/metrics.md` has each one's unit and meaning.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Literal

Axis = Literal["meta_step", "agent_steps", "examples"]
AXES: tuple[Axis, ...] = ("meta_step", "agent_steps", "examples")
"""A row's axis is the first that it has: rows of meta-training have agent_steps too."""
Unit = Literal["agent_steps", "examples"]
"""Unit of tasks' budgets: actions, or examples that an update learns from."""
UNITS: Mapping[Unit, str] = {"agent_steps": "agent steps", "examples": "examples"}
"""In words."""
Row = Mapping[str, float | int]


def by_game(row: Row, area: str, stat: str) -> dict[str, float]:
    """Return the values of `AREA/GAME/STAT` by game; names of games may have slashes."""
    found = ((re.fullmatch(f"{area}/(.+)/{stat}", key), value) for key, value in row.items())
    return {match[1]: value for match, value in found if match}
