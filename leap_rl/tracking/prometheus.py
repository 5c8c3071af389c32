"""What a run on Ray shows to Prometheus: the name of each series, its kind, unit and meaning.

The parameter server's actor records them through Ray, whose agents put them on the Prometheus page
of its node (`training/ray_metrics.py`). They are for watching; what counts is in `metrics.jsonl`.
`docs/launch/prometheus.md` explains every name, the dashboard in `launch/metrics` uses no other,
and tests hold the three together.

This module imports the standard library alone.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Kind = Literal["counter", "gauge"]


@dataclass(frozen=True, kw_only=True)
class Series:
    """One name on the Prometheus page."""

    name: str
    """Without what Ray puts before it."""
    kind: Kind
    unit: str
    meaning: str
    """In ASCII, as Ray takes no other text."""
    labels: tuple[str, ...] = ()
    """Besides `run` and those of Ray."""
    row: str | None = None
    """The key in `metrics.METRICS` that it mirrors, of the newest committed meta-step."""

    @property
    def exported(self) -> str:
        """The name on the page, which is the one to ask Prometheus for."""
        return f"ray_{self.name}"


def _counter(what: str, unit: str, meaning: str) -> Series:
    return Series(name=f"leap_rl_{what}_total", kind="counter", unit=unit, meaning=meaning)


def _gauge(what: str, unit: str, meaning: str, *labels: str, row: str | None = None) -> Series:
    return Series(
        name=f"leap_rl_{what}", kind="gauge", unit=unit, meaning=meaning, labels=labels, row=row
    )


SERIES: tuple[Series, ...] = (
    _gauge("meta_step", "meta-steps", "The open meta-step, from 0; meta_steps when all are done."),
    _gauge("meta_steps", "meta-steps", "How many meta-steps the run is to do."),
    _gauge(
        "slots",
        "slots",
        "Places in the open meta-step's batch by their state: pending, running or complete.",
        "state",
    ),
    _gauge(
        "last_message_timestamp_seconds",
        "Unix seconds",
        "When a sum last came that was taken in, within a second.",
    ),
    _counter(
        "agent_steps",
        "agent steps",
        "Agent steps that trainers told of, those done again after a death included; where tasks "
        "have no agents, examples.",
    ),
    _gauge(
        "agent_steps_per_second",
        "agent steps/s",
        "Speed of the game's running tasks together, as last heard; 0 while none runs.",
        "game",
    ),
    _gauge(
        "mean_return",
        "raw score",
        "Mean raw return of the last episodes of a task of the game, as last heard.",
        "game",
    ),
    _counter("streams", "streams", "Sums so far that were taken in."),
    _counter("snapshots", "snapshots", "Snapshots of running tasks that were put on disk."),
    _counter("tasks_completed", "tasks", "Whole sums that were counted."),
    _counter(
        "repeats_refused",
        "messages",
        "Claims and sums that came again or were overtaken, and changed nothing.",
    ),
    _counter(
        "abandons",
        "messages",
        "Messages of attempts that had lost their slot; their trainers were told to abandon it.",
    ),
    _counter(
        "lease_expiries",
        "leases",
        "Slots that were taken from a trainer, as nothing was heard of it for runtime.lease_s.",
    ),
    _counter("trainers_lost", "trainers", "Trainers that Ray said were dead."),
    _counter(
        "server_restarts",
        "restarts",
        "Lives of the parameter server that took the place of one that had died.",
    ),
    _counter(
        "tasks_restarted",
        "tasks",
        "Tasks that began again with another seed, as their numbers went bad.",
    ),
    _counter("tasks_dropped", "tasks", "Tasks that were left out of their meta-step's mean."),
    _counter(
        "tasks_cut_off",
        "tasks",
        "Tasks that were not complete when their meta-step closed after meta.close_after_s.",
    ),
    _gauge(
        "meta_step_seconds",
        "seconds",
        "Wall-clock time of the newest committed meta-step.",
        row="time/meta_step_s",
    ),
    _gauge(
        "working_seconds",
        "seconds",
        "Time for which trainers worked on the newest committed meta-step, summed over its slots.",
        row="time/working_s",
    ),
    _gauge(
        "waiting_seconds",
        "seconds",
        "Time for which trainers waited for work or for an answer, in the same meta-step.",
        row="time/waiting_s",
    ),
    _gauge(
        "contribution_norm",
        "norm of the contribution",
        "Norm of the newest committed meta-step's mean contribution, which is the meta-gradient.",
        row="meta/contribution_norm",
    ),
    _gauge(
        "step_ratio",
        "ratio",
        "Norm of the newest committed meta-step's step over that of the initialization.",
        row="meta/step_ratio",
    ),
    _gauge(
        "validation_gain",
        "deviations",
        "Mean gain over the validation games, of the newest meta-step that judged.",
        row="validation/gain",
    ),
)
