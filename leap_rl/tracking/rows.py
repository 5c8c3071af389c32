"""The rows that a run records: what each is made of, and its metrics by key.

The builders refuse a key that `METRICS` does not hold, so that nothing is recorded that is not
explained. This module imports the standard library and the list of metrics alone: the training code
builds rows with it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from statistics import fmean

from leap_rl.tracking.metrics import METRICS, Axis, Row, Unit, pattern_of


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
    """As the gradient path's `metrics` returns them."""
    contribution_norm: float
    cosine: float | None
    """Between this contribution and the batch's mean; None when either is zero."""
    share: float | None = None
    """Of the batch's mean: the contribution's projection on it by n |mean|, n contributions in all;
    the shares of a batch add up to 1. None when the mean is zero."""
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
        meta: the outer step's metrics.
        agent_steps_before: agent steps of all meta-steps before this one.
        validation: metrics of the initialization that the meta-step began with, if it was judged.
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
        metrics = {**slot.path, "contribution_norm": slot.contribution_norm}
        if slot.cosine is not None:
            metrics["cosine"] = slot.cosine
        path.append(metrics)
    row: dict[str, float | int] = {}
    row.update({f"path/{game}/{name}": mean for name, mean in _means(path).items()})
    shares = [slot.share for slot in slots if slot.share is not None]
    if shares:
        row[f"path/{game}/share"] = math.fsum(shares)
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


def _means(metrics: Sequence[Mapping[str, float]]) -> dict[str, float]:
    """The mean of each name over those mappings that have it."""
    names = dict.fromkeys(name for each in metrics for name in each)
    return {name: fmean([each[name] for each in metrics if name in each]) for name in names}


def _assert_registered(row: Row, axis: Axis) -> None:
    axes = {metric.pattern: metric.axes for metric in METRICS}
    for key in row:
        pattern = pattern_of(key)
        assert pattern is not None, f"{key} is not in METRICS"
        assert axis in axes[pattern], f"{key} does not belong to a row of axis {axis}"
