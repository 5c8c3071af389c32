"""Every figure that a run records: its key, unit and meaning, and the rows that carry it.

A row is a flat mapping from key to plain number and belongs to one axis: `meta_step` for
meta-training, `agent_steps` for agents that learn alone. Keys are `<area>/<name>[/<stat>]`; the
`<game>` in a pattern stands for one path segment, or two: MinAtar/Asterix-v1 is a name. The row
builders refuse a key that `METRICS` does not hold, so that nothing is recorded that is not
explained: `docs/metrics.md` explains every pattern, and a test holds the two together.

This module imports the standard library alone: the training code builds rows with it.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from statistics import fmean
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
        "Norm of the loss term's part of Leap's contribution, the sum of |Δf|∇f over segments.",
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
        "raw score",
        META,
        "Area under the learning curve of a validation game, learned from the initialization that "
        "the meta-step began with: its mean return over the budget. In tasks without episodes, "
        "minus the mean training error, or minus the mean loss.",
    ),
    Metric(
        "validation/<game>/gain",
        "raw score",
        META,
        "The area less that of version 0.",
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


@dataclass(frozen=True, kw_only=True)
class SlotFigures:
    """What one counted task of a meta-step reports; a slot is one place in the batch."""

    game: str
    agent_steps: int
    """Agent steps of the whole task, those done before a snapshot was taken over included. In
    the unit of the run's budgets."""
    frames_per_agent_step: int
    """Emulator frames in an agent step; 0 for a task that has no frames."""
    path: Mapping[str, float] = field(default_factory=dict)
    """The gradient path's figures: displacement, and with Leap energy (p = 2) or length (p = 1)
    and loss_pull."""
    contribution_norm: float
    cosine: float | None
    """Between this contribution and the batch's mean; None when either is zero."""
    losses: Mapping[str, float] = field(default_factory=dict)
    """Means over the task's updates: total, and policy, value, entropy for an actor-critic, or the
    errors of a classifier."""
    episode_return_sum: float = 0.0
    episodes: int = 0
    """Episodes that ended within the task; `episode_return_sum` sums their raw returns."""
    working_s: float
    waiting_s: float


@dataclass(frozen=True, kw_only=True)
class MetaFigures:
    """What the outer step of one meta-step reports."""

    contribution_norm: float
    """Norm of the mean contribution."""
    step_norm: float
    initialization_norm: float
    """Before the step."""
    meta_step_s: float
    """Wall clock, from the first slot's opening to the commit."""
    tasks_restarted: int = 0
    tasks_cut_off: int = 0
    dropped: Sequence[str] = ()
    """The games of the tasks that were dropped."""
    cosines: Mapping[tuple[str, str], Sequence[float]] = field(default_factory=dict)
    """Between the contributions of two slots, by their games in alphabetical order: one for each
    pair of slots with these games, those left out in which a contribution is zero."""


def meta_step_row(
    *,
    meta_step: int,
    slots: Sequence[SlotFigures],
    meta: MetaFigures,
    agent_steps_before: int,
    validation: Mapping[str, float | int] | None = None,
    unit: Unit = "agent_steps",
) -> dict[str, float | int]:
    """The row of one committed meta-step, axis `meta_step`.

    A game that fills several slots gets the mean over its slots; its mean return is over all their
    episodes together, never a mean of means.

    Args:
        meta_step: the committed meta-step, from 0.
        slots: the counted tasks, in slot order.
        meta: the outer step's figures.
        agent_steps_before: agent steps of all meta-steps before this one.
        validation: figures of the initialization that the meta-step began with, if it was judged.
        unit: what agent steps are called in the row; a task that counts examples has no episodes.
    """
    new_agent_steps = sum(slot.agent_steps for slot in slots)
    agent_steps = agent_steps_before + new_agent_steps
    row: dict[str, float | int] = {"meta_step": meta_step, unit: agent_steps}
    frames_per_agent_step = {slot.frames_per_agent_step for slot in slots}
    assert len(frames_per_agent_step) == 1, "the tasks of a run share one frame skip"
    if any(frames_per_agent_step):
        row["frames"] = agent_steps * frames_per_agent_step.pop()

    row["meta/contribution_norm"] = meta.contribution_norm
    row["meta/step_norm"] = meta.step_norm
    row["meta/initialization_norm"] = meta.initialization_norm
    if meta.initialization_norm > 0:
        row["meta/step_ratio"] = meta.step_norm / meta.initialization_norm

    for game in dict.fromkeys(slot.game for slot in slots):
        row.update(_game_figures(game, [slot for slot in slots if slot.game == game], unit))
    for (first, second), cosines in meta.cosines.items():
        row[f"cosine/{first}/{second}"] = fmean(cosines)

    row["tasks/restarted"] = meta.tasks_restarted
    row["tasks/cut_off"] = meta.tasks_cut_off
    row["tasks/dropped"] = len(meta.dropped)
    row.update({f"tasks/{game}/dropped": meta.dropped.count(game) for game in meta.dropped})
    row["time/working_s"] = math.fsum(slot.working_s for slot in slots)
    row["time/waiting_s"] = math.fsum(slot.waiting_s for slot in slots)
    row["time/meta_step_s"] = meta.meta_step_s
    if meta.meta_step_s > 0:
        row[f"throughput/{unit}_per_s"] = new_agent_steps / meta.meta_step_s
    row.update(validation or {})
    _assert_registered(row, "meta_step")
    return row


def learn_row(
    *,
    game: str,
    agent_steps: int,
    losses: Mapping[str, float],
    episode_return_sum: float,
    episodes: int,
    agent_steps_per_s: float,
    unit: Unit = "agent_steps",
) -> dict[str, float | int]:
    """One point of a lone agent's learning curve, axis `agent_steps` or `examples`.

    Args:
        game: the game that the agent learns.
        agent_steps: of this agent, from its start.
        losses: means over the updates since the game's last row: total, policy, value, entropy.
        episode_return_sum: of the raw returns of the episodes that ended since the last row.
        episodes: how many ended.
        agent_steps_per_s: since the last row.
        unit: what agent steps are called in the row; a task that counts examples has no episodes.
    """
    row: dict[str, float | int] = {unit: agent_steps}
    if unit == "agent_steps":
        row.update(_returns(game, episode_return_sum, episodes))
    row.update(_losses(game, losses))
    row[f"throughput/{game}/{unit}_per_s"] = agent_steps_per_s
    _assert_registered(row, unit)
    return row


def dropped_row(
    *, game: str, agent_steps: int, unit: Unit = "agent_steps"
) -> dict[str, float | int]:
    """The row of a lone agent that was dropped; its axis is its unit.

    Args:
        game: the game that it was learning.
        agent_steps: of this agent, until its numbers went bad.
        unit: what its budget is counted in.
    """
    row: dict[str, float | int] = {unit: agent_steps, f"tasks/{game}/dropped": 1}
    _assert_registered(row, unit)
    return row


def evaluation_row(
    agent_steps: int, mean_returns: Mapping[tuple[str, str], float]
) -> dict[str, float | int]:
    """One point of an evaluation's learning curves, axis `agent_steps`.

    Args:
        agent_steps: of each agent, from its start.
        mean_returns: by initialization and game.
    """
    row: dict[str, float | int] = {"agent_steps": agent_steps}
    for (initialization, game), mean in mean_returns.items():
        row[f"evaluation/{initialization}/{game}/mean_return"] = mean
    _assert_registered(row, "agent_steps")
    return row


def _game_figures(game: str, slots: Sequence[SlotFigures], unit: Unit) -> dict[str, float | int]:
    path: list[dict[str, float]] = []
    for slot in slots:
        figures = {**slot.path, "contribution_norm": slot.contribution_norm}
        if slot.cosine is not None:
            figures["cosine"] = slot.cosine
        path.append(figures)
    row: dict[str, float | int] = {}
    row.update({f"path/{game}/{name}": mean for name, mean in _means(path).items()})
    return_sum = math.fsum(slot.episode_return_sum for slot in slots)
    if unit == "agent_steps":
        row.update(_returns(game, return_sum, sum(slot.episodes for slot in slots)))
    row.update(_losses(game, _means([slot.losses for slot in slots])))
    return row


def _losses(game: str, losses: Mapping[str, float]) -> dict[str, float]:
    """The keys of a task's losses; an error is a loss that people can read."""
    return {
        f"error/{game}/{name.removesuffix('_error')}"
        if name.endswith("_error")
        else f"loss/{game}/{name}": value
        for name, value in losses.items()
    }


def _returns(game: str, return_sum: float, episodes: int) -> dict[str, float | int]:
    row: dict[str, float | int] = {f"return/{game}/episodes": episodes}
    if episodes > 0:
        row[f"return/{game}/mean"] = return_sum / episodes
    return row


def _means(figures: Sequence[Mapping[str, float]]) -> dict[str, float]:
    """The mean of each name over those mappings that have it."""
    names = dict.fromkeys(name for each in figures for name in each)
    return {name: fmean([each[name] for each in figures if name in each]) for name in names}


def axis_of(row: Row) -> Axis:
    """Return the axis of a row that was logged. One of meta-training counts agent steps too."""
    return next(axis for axis in AXES if axis in row)


def _assert_registered(row: Row, axis: Axis) -> None:
    axes = {metric.pattern: metric.axes for metric in METRICS}
    for key in row:
        pattern = pattern_of(key)
        assert pattern is not None, f"{key} is not in METRICS"
        assert axis in axes[pattern], f"{key} does not belong to a row of axis {axis}"
