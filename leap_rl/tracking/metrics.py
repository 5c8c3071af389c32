"""A row of metrics: a flat mapping from key to plain number, which belongs to one axis.

The axis is `meta_step` for meta-training, `agent_steps` or `examples` for agents that learn alone.
Keys are `<area>/<name>[/<stat>]`; `docs/metrics.md` has each one's unit and meaning.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Literal

Axis = Literal["meta_step", "agent_steps", "examples"]
AXES: tuple[Axis, ...] = ("meta_step", "agent_steps", "examples")
Unit = Literal["agent_steps", "examples"]
"""What the budgets of a run's tasks count: actions, or examples that an update learns from."""
Row = Mapping[str, float | int]


def by_game(row: Row, area: str, stat: str) -> dict[str, float]:
    """Return a metric of games by their names, which may have slashes: of `AREA/GAME/STAT`."""
    found = ((re.fullmatch(f"{area}/(.+)/{stat}", key), value) for key, value in row.items())
    return {match[1]: value for match, value in found if match}


def axis_of(row: Row) -> Axis:
    """Return the axis of a row that was logged. One of meta-training counts agent steps too."""
    return next(axis for axis in AXES if axis in row)
