"""Every figure that a run records: its key, unit and meaning.

A row is a flat mapping from key to plain number and belongs to one axis: `meta_step` for
meta-training, `agent_steps` for agents that learn alone. Keys are `<area>/<name>[/<stat>]`; the
`<game>` in a pattern stands for one path segment, or two: MinAtar/Asterix-v1 is a name. `rows.py`
builds the rows; `docs/metrics.md` explains every pattern, and a test holds the two together.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
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
ALL = AXES


@dataclass(frozen=True)
class Metric:
    """One kind of figure: the pattern of its key, its unit, the axes of its rows, its meaning."""

    pattern: str
    unit: str
    axes: tuple[Axis, ...]
    meaning: str


METRICS: tuple[Metric, ...] = (
    Metric("meta_step", "meta-steps", META, "The meta-step that the row describes, from 0."),
    Metric(
        "agent_steps",
        "agent steps",
        BOTH,
        "Agent steps so far: of all counted tasks of the run, or of the row's one agent.",
    ),
    Metric(
        "examples",
        "examples",
        BOTH_EXAMPLES,
        "In tasks without agents: examples learned from so far, of all counted tasks of the run, "
        "or of the row's one task.",
    ),
    Metric("frames", "frames", META, "Emulator frames so far, of all counted tasks of the run."),
    Metric(
        "meta/contribution_norm",
        "norm of the contribution",
        META,
        "Norm of the batch's mean contribution, which is the meta-gradient.",
    ),
    Metric(
        "meta/step_norm",
        "norm of the parameters",
        META,
        "Norm of the change that the outer optimizer made to the initialization.",
    ),
    Metric(
        "meta/initialization_norm",
        "norm of the parameters",
        META,
        "Norm of the initialization before the meta-step.",
    ),
    Metric(
        "meta/step_ratio",
        "ratio",
        META,
        "Step norm over initialization norm; absent when the initialization is zero.",
    ),
    Metric(
        "path/<game>/energy",
        "squared norm",
        META,
        "Sum of the squared lengths of the gradient path's segments (Leap with p = 2).",
    ),
    Metric(
        "path/<game>/length",
        "norm",
        META,
        "Sum of the lengths of the gradient path's segments (Leap with p = 1).",
    ),
    Metric(
        "path/<game>/loss_pull",
        "norm of the contribution",
        META,
        "Norm of the loss term's part of Leap's contribution, the sum of |Δf|∇f over segments; in "
        "the Euclidean metric.",
    ),
    Metric(
        "path/<game>/mean_weight",
        "ratio",
        META,
        "Mean over the segments of their weights in Leap's contribution; in the optimizer's "
        "metric.",
    ),
    Metric(
        "path/<game>/effective_segments",
        "0 to 1",
        META,
        "The effective sample size of these weights as a share of the segments: 1 where all count "
        "alike, near 0 where one owns the sum.",
    ),
    Metric(
        "path/<game>/first_step",
        "ratio",
        META,
        "Length of the first update of the shared parameters over the initialization's norm.",
    ),
    Metric(
        "path/<game>/displacement",
        "norm of the parameters",
        META,
        "Distance of the shared parameters at the path's end from the initialization.",
    ),
    Metric(
        "path/<game>/cosine",
        "-1 to 1",
        META,
        "Cosine between the game's contribution and the mean; absent when either is zero.",
    ),
    Metric(
        "path/<game>/share",
        "ratio",
        META,
        "The game's share of the mean contribution, over all of its slots; the shares of a batch "
        "add up to 1, and one that pulls against the mean has a negative one.",
    ),
    Metric(
        "path/<game>/contribution_norm",
        "norm of the contribution",
        META,
        "Norm of the game's own contribution.",
    ),
    Metric(
        "cosine/<game>/<game>",
        "-1 to 1",
        META,
        "Cosine between the contributions of two games of the batch, named in alphabetical order; "
        "of one game with itself where it fills several slots. Absent when either is zero.",
    ),
    Metric(
        "return/<game>/mean",
        "raw score",
        BOTH,
        "Mean raw return of the episodes that ended; absent when none did.",
    ),
    Metric(
        "evaluation/<initialization>/<game>/mean_return",
        "raw score",
        LEARN,
        "In an evaluation: mean raw return of the episodes that ended since the last row, over all "
        "agents of the initialization; absent when none did.",
    ),
    Metric("return/<game>/episodes", "episodes", BOTH, "Number of episodes that ended."),
    Metric(
        "loss/<game>/total",
        "loss",
        ALL,
        "Mean over the updates of the loss that they descend.",
    ),
    Metric("loss/<game>/policy", "loss", BOTH, "Mean over the updates of the policy loss."),
    Metric(
        "loss/<game>/value",
        "loss",
        BOTH,
        "Mean over the updates of the value loss, before its coefficient.",
    ),
    Metric(
        "loss/<game>/entropy", "nats", BOTH, "Mean over the updates of the policy's mean entropy."
    ),
    Metric(
        "loss/<game>/validation",
        "loss",
        BOTH_EXAMPLES,
        "Mean over the validations of the loss on examples that are never learned from.",
    ),
    Metric(
        "error/<game>/training",
        "0 to 1",
        BOTH_EXAMPLES,
        "Mean over the updates of the share of the batch that was classified wrongly before the "
        "update: over a whole task, the area under its training-error curve.",
    ),
    Metric(
        "error/<game>/validation",
        "0 to 1",
        BOTH_EXAMPLES,
        "Mean over the validations of the share of held-back examples classified wrongly.",
    ),
    Metric(
        "validation/<game>/area",
        "per 1,000 steps",
        META,
        "Area under the learning curve of a validation game, learned from the initialization that "
        "the meta-step began with: raw reward per 1,000 agent steps over the budget, the mean over "
        "agents. In tasks without rewards, minus the mean training error, or minus the mean loss.",
    ),
    Metric(
        "validation/<game>/gain",
        "per 1,000 steps",
        META,
        "The area less that of version 0, agent by agent.",
    ),
    Metric(
        "validation/gain",
        "deviations",
        META,
        "Mean over the validation games of the gain in standard deviations of version 0's curve.",
    ),
    Metric(
        "validation/best",
        "meta-steps",
        META,
        "The version of the initialization with the highest mean gain so far: RUN@best.",
    ),
    Metric(
        "validation/agents",
        "agents",
        META,
        "Agents that the gain is of, in the validation game with the fewest.",
    ),
    Metric(
        "time/working_s",
        "seconds",
        META,
        "Time for which trainers worked on the meta-step's tasks, summed over its slots.",
    ),
    Metric(
        "time/waiting_s",
        "seconds",
        META,
        "Time for which trainers waited for work or for an answer, summed over its slots.",
    ),
    Metric("time/meta_step_s", "seconds", META, "Wall-clock time of the meta-step."),
    Metric(
        "tasks/restarted",
        "tasks",
        META,
        "Tasks of the meta-step that began again with another seed, as their numbers went bad.",
    ),
    Metric(
        "tasks/dropped",
        "tasks",
        META,
        "Tasks of the meta-step that are left out of its mean.",
    ),
    Metric(
        "tasks/cut_off",
        "tasks",
        META,
        "Tasks that were not complete when the meta-step closed after meta.close_after_s: the mean "
        "has their sums so far.",
    ),
    Metric(
        "tasks/<game>/dropped", "tasks", BOTH, "Tasks of the game that were dropped; absent for 0."
    ),
    Metric(
        "throughput/agent_steps_per_s",
        "agent steps/s",
        META,
        "The meta-step's agent steps over its wall-clock time.",
    ),
    Metric(
        "throughput/<game>/agent_steps_per_s",
        "agent steps/s",
        LEARN,
        "Agent steps of the game's agent per second since the game's last row.",
    ),
    Metric(
        "throughput/examples_per_s",
        "examples/s",
        META,
        "The meta-step's examples over its wall-clock time.",
    ),
    Metric(
        "throughput/<game>/examples_per_s",
        "examples/s",
        LEARN_EXAMPLES,
        "Examples of the task per second since the game's last row.",
    ),
)


_PLACES = re.compile("<[a-z]+>")


def _place(place: re.Match[str]) -> str:
    """What may stand for a place in a pattern; a game's name may have one slash."""
    return "[^/]+(?:/[^/]+)?" if place[0] == "<game>" else "[^/]+"


@cache
def _matchers() -> tuple[tuple[re.Pattern[str], str], ...]:
    return tuple(
        (re.compile(_PLACES.sub(_place, re.escape(metric.pattern))), metric.pattern)
        for metric in METRICS
    )


def pattern_of(key: str) -> str | None:
    """The pattern in `METRICS` that `key` is an instance of, or None."""
    return next((pattern for regex, pattern in _matchers() if regex.fullmatch(key)), None)


def axis_of(row: Row) -> Axis:
    """Return the axis of a row that was logged. One of meta-training counts agent steps too."""
    return next(axis for axis in AXES if axis in row)
