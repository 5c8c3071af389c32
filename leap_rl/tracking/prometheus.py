"""The Prometheus series of a run on Ray: name, kind and meaning.

`training/runtime/ray/metrics.py` exports them on the server's node, for display only.
`docs/launch/prometheus.md` explains them; tests compare both with `launch/metrics`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, kw_only=True)
class Series:
    """One name on the Prometheus page."""

    name: str
    """Without Ray's prefix `ray_`."""
    kind: Literal["counter", "gauge"]
    meaning: str
    """In ASCII, which Ray requires."""
    labels: tuple[str, ...] = ()
    """Besides `run` and Ray's own."""
    row: str | None = None
    """Key of the metric that it mirrors, of the newest committed meta-step that has it."""


def _counter(what: str, meaning: str) -> Series:
    return Series(name=f"leap_rl_{what}_total", kind="counter", meaning=meaning)


def _gauge(what: str, meaning: str, *labels: str, row: str | None = None) -> Series:
    return Series(name=f"leap_rl_{what}", kind="gauge", meaning=meaning, labels=labels, row=row)


SERIES: tuple[Series, ...] = (
    _gauge("meta_step", "The open meta-step, from 0; meta_steps when all are done."),
    _gauge("meta_steps", "How many meta-steps the run is to do."),
    _gauge("slots", "Slots of the open meta-step: pending, running or complete.", "state"),
    _gauge("last_message_timestamp_seconds", "When a sum was last taken in, within a second."),
    _counter("agent_steps", "Agent steps (or examples) of trainers, repeated ones included."),
    _gauge("agent_steps_per_second", "Speed of the game's running tasks together.", "game"),
    _gauge("mean_return", "Mean raw return of the last episodes of a task of the game.", "game"),
    _counter("streams", "Sums so far that were taken in."),
    _counter("snapshots", "Snapshots of running tasks that were put on disk."),
    _counter("tasks_completed", "Whole sums that were counted."),
    _counter("repeats_refused", "Claims and sums that came again or late, and changed nothing."),
    _counter("abandons", "Messages of attempts that had lost their slot."),
    _counter("lease_expiries", "Slots taken from a trainer unheard of for runtime.lease_s."),
    _counter("trainers_lost", "Trainers that Ray said were dead."),
    _counter("server_restarts", "Parameter servers that took the place of one that had died."),
    _counter("tasks_restarted", "Tasks that began again with another seed after diverging."),
    _counter("tasks_dropped", "Tasks that were left out of their meta-step's mean."),
    _counter("tasks_cut_off", "Tasks incomplete when a meta-step closed (meta.close_after_s)."),
    _gauge("meta_step_seconds", "Wall-clock time of the meta-step.", row="time/meta_step_s"),
    _gauge("working_seconds", "Trainers' work, summed over slots.", row="time/working_s"),
    _gauge("waiting_seconds", "Trainers' waiting, summed over slots.", row="time/waiting_s"),
    _gauge("contribution_norm", "Norm of the meta-gradient.", row="meta/contribution_norm"),
    _gauge("step_ratio", "Norm of the step over the initialization's.", row="meta/step_ratio"),
    _gauge("validation_gain", "Mean gain over the validation games.", row="validation/gain"),
)
