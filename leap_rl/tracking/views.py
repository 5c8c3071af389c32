"""A run at one moment, as the console shows it."""

from __future__ import annotations

from dataclasses import dataclass

from leap_rl.tracking.metrics import Row, Unit


@dataclass(frozen=True, kw_only=True)
class TaskView:
    """One running task as the console shows it."""

    slot: int
    game: str
    trainer: str
    agent_steps: int
    agent_steps_total: int
    """The task's budget."""
    agent_steps_per_s: float
    mean_return: float | None
    """Over recent episodes; None before the first one has ended."""


@dataclass(frozen=True, kw_only=True)
class RunView:
    """A run at one moment, as the console shows it. All of it is provisional but `last_row`."""

    kind: str
    """The command that made the run: train, learn or evaluate."""
    meta_step: int
    """The open meta-step, from 0; equal to `meta_steps` when the run is over. 0 for others."""
    meta_steps: int
    """How many the run is to do, those before a resume included; 1 for others."""
    slots_done: int
    slots_total: int
    tasks: tuple[TaskView, ...]
    """The running tasks only, in slot order."""
    agent_steps_per_s: float
    """Of all running tasks together."""
    elapsed_s: float
    """Since this process began to show the run; never runs backwards."""
    last_row: Row | None = None
    """The newest committed row, if any."""
    unit: Unit = "agent_steps"
    """What the tasks' agent steps are."""
