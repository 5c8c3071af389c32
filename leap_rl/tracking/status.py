"""A run's status: the parameter server's part, and what the driver adds for display.

Consoles, `live.json`, Prometheus and the driver's supervision all read these classes.
"""

from __future__ import annotations

from dataclasses import dataclass

from leap_rl.tracking.metrics import Row, Unit


@dataclass(frozen=True, kw_only=True, slots=True)
class TaskStatus:
    """A slot that a trainer works on."""

    slot: int
    game: str
    trainer: str
    attempt: int
    agent_steps: int = 0
    """Of the task so far, as its trainer last reported."""
    agent_steps_per_s: float = 0.0
    mean_return: float | None = None
    """Mean raw return of the last episodes; None before the first has ended."""


@dataclass(frozen=True, kw_only=True, slots=True)
class RunStatus:
    """A run at one moment. The fields from `command` on are the driver's."""

    round: int
    """The open round (meta-step), from 0; equal to `rounds` when the run is finished."""
    rounds: int
    slots_complete: int
    slots_total: int
    running: tuple[TaskStatus, ...] = ()
    """In slot order."""
    durable_segments: int = 0
    """Segments behind the snapshots of running tasks."""
    failure: str | None = None
    """Why the run cannot continue, if so."""
    command: str = "train"
    """The command that made the run: train, learn or evaluate."""
    agent_steps_total: int = 1
    """Budget of each task, in `unit`."""
    unit: Unit = "agent_steps"
    elapsed_s: float = 0.0
    """Since the driver started."""
    last_row: Row | None = None
    """The newest row that this driver logged."""

    @property
    def finished(self) -> bool:
        return self.round >= self.rounds

    @property
    def agent_steps_per_s(self) -> float:
        return sum(task.agent_steps_per_s for task in self.running)

    @property
    def round_fraction(self) -> float:
        """The part of the open round that is done, from 0 to 1."""
        if self.slots_total == 0:
            return 0.0
        running = sum(task.agent_steps / self.agent_steps_total for task in self.running)
        return min((self.slots_complete + running) / self.slots_total, 1.0)
