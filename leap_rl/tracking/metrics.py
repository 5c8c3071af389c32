"""Every metric that a run records: the pattern of its key, and the axes of the rows that have it.

A row is a flat mapping from key to plain number and belongs to one axis: `meta_step` for
meta-training, `agent_steps` or `examples` for agents that learn alone. Keys are
`<area>/<name>[/<stat>]`; the `<game>` in a pattern stands for one path segment, or two:
MinAtar/Asterix-v1 is a name. `docs/metrics.md` has each pattern's unit and meaning.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cache
from typing import Literal

Axis = Literal["meta_step", "agent_steps", "examples"]
AXES: tuple[Axis, ...] = ("meta_step", "agent_steps", "examples")
Unit = Literal["agent_steps", "examples"]
"""What the budgets of a run's tasks count: actions, or examples that an update learns from."""
Row = Mapping[str, float | int]

META: tuple[Axis, ...] = ("meta_step",)
LEARN: tuple[Axis, ...] = ("agent_steps",)
LEARN_EXAMPLES: tuple[Axis, ...] = ("examples",)
BOTH: tuple[Axis, ...] = ("meta_step", "agent_steps")
BOTH_EXAMPLES: tuple[Axis, ...] = ("meta_step", "examples")

METRICS: Mapping[str, tuple[Axis, ...]] = {
    "meta_step": META,
    "agent_steps": BOTH,
    "examples": BOTH_EXAMPLES,
    "frames": META,
    "meta/contribution_norm": META,
    "meta/step_norm": META,
    "meta/initialization_norm": META,
    "meta/step_ratio": META,
    "path/<game>/energy": META,
    "path/<game>/length": META,
    "path/<game>/loss_pull": META,
    "path/<game>/mean_weight": META,
    "path/<game>/effective_segments": META,
    "path/<game>/first_step": META,
    "path/<game>/displacement": META,
    "path/<game>/cosine": META,
    "path/<game>/share": META,
    "path/<game>/contribution_norm": META,
    "cosine/<game>/<game>": META,
    "return/<game>/mean": BOTH,
    "evaluation/<initialization>/<game>/mean_return": LEARN,
    "return/<game>/episodes": BOTH,
    "loss/<game>/total": AXES,
    "loss/<game>/policy": BOTH,
    "loss/<game>/value": BOTH,
    "loss/<game>/entropy": BOTH,
    "loss/<game>/validation": BOTH_EXAMPLES,
    "error/<game>/training": BOTH_EXAMPLES,
    "error/<game>/validation": BOTH_EXAMPLES,
    "validation/<game>/area": META,
    "validation/<game>/gain": META,
    "validation/gain": META,
    "validation/best": META,
    "validation/agents": META,
    "time/working_s": META,
    "time/waiting_s": META,
    "time/meta_step_s": META,
    "tasks/restarted": META,
    "tasks/dropped": META,
    "tasks/cut_off": META,
    "tasks/<game>/dropped": AXES,
    "throughput/agent_steps_per_s": META,
    "throughput/<game>/agent_steps_per_s": LEARN,
    "throughput/examples_per_s": META,
    "throughput/<game>/examples_per_s": LEARN_EXAMPLES,
}


def _place(place: re.Match[str]) -> str:
    """What may stand for a place in a pattern; a game's name may have one slash."""
    return "[^/]+(?:/[^/]+)?" if place[0] == "<game>" else "[^/]+"


@cache
def _matchers() -> tuple[tuple[re.Pattern[str], str], ...]:
    places = re.compile("<[a-z]+>")
    return tuple(
        (re.compile(places.sub(_place, re.escape(pattern))), pattern) for pattern in METRICS
    )


def pattern_of(key: str) -> str | None:
    """The pattern in `METRICS` that `key` is an instance of, or None."""
    return next((pattern for regex, pattern in _matchers() if regex.fullmatch(key)), None)


def axis_of(row: Row) -> Axis:
    """Return the axis of a row that was logged. One of meta-training counts agent steps too."""
    return next(axis for axis in AXES if axis in row)
