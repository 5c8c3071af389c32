"""A run's status in words, for all consoles."""

from __future__ import annotations

from leap_rl.tracking.metrics import Row, Unit, by_game
from leap_rl.tracking.status import RunStatus

GAMES_IN_A_LINE = 4
UNITS: dict[Unit, str] = {"agent_steps": "agent steps", "examples": "examples"}
_SLOTS = {"learn": "game", "evaluate": "agent"}
"""Word for a slot in runs without meta-steps."""


class History:
    """State across status updates: printed meta-steps and the time left."""

    def __init__(self) -> None:
        self._printed: float | None = None
        self._done_before: float | None = None
        self._first: tuple[float, float] | None = None
        """Share of the work and elapsed seconds at the first progress."""

    def finished_line(self, status: RunStatus) -> str | None:
        row = status.last_row
        if status.command != "train" or row is None or row["meta_step"] == self._printed:
            return None
        self._printed = row["meta_step"]
        return _finished_line(row, status.rounds)

    def remaining_s(self, status: RunStatus) -> float | None:
        """Return the time left at the pace since the first progress; None before the second.

        A resumed run starts with much of its work done, and every run loads its code first.
        """
        done = min((status.round + status.round_fraction) / status.rounds, 1.0)
        if self._done_before is None:
            self._done_before = done
        if self._first is None and done > self._done_before:
            self._first = done, status.elapsed_s
        if self._first is None or done <= self._first[0]:
            return None
        gained = done - self._first[0]
        return (1.0 - done) / gained * (status.elapsed_s - self._first[1])


def start_line(status: RunStatus) -> str:
    """Return the run's size in words."""
    if status.command in _SLOTS:
        return f"learning: {counted(status.slots_total, _SLOTS[status.command])}"
    start = f"from meta-step {status.round}, " if status.round else ""
    batch = counted(status.slots_total, "task")
    return f"training: {start}{counted(status.rounds, 'meta-step')} in all, {batch} each"


def progress_line(status: RunStatus, eta_s: float | None) -> str:
    """Return the run's progress, with its first running tasks."""
    tasks = [
        f"{task.game} {task.progress.agent_steps / status.agent_steps_total:.0%}"
        + ("" if (mean := task.progress.mean_return) is None else f" return {mean:.1f}")
        for task in status.running
    ]
    line = f"{place(status)}, {slots(status)}, {pace(status, eta_s)}"
    return f"{line}: {_listed(tasks)}" if tasks else line


def place(status: RunStatus) -> str:
    """Return which meta-step is open."""
    if status.command in _SLOTS:
        return "learning"
    return f"meta-step {min(status.round + 1, status.rounds)} of {status.rounds}"


def slots(status: RunStatus) -> str:
    """Return the number of complete slots."""
    noun = _SLOTS.get(status.command, "task")
    return f"{status.slots_complete} of {counted(status.slots_total, noun)} done"


def pace(status: RunStatus, eta_s: float | None) -> str:
    """Return the time so far, the time left and the speed."""
    eta = "" if eta_s is None else f", about {_duration(eta_s)} left"
    rate = f"{status.agent_steps_per_s:,.0f} {UNITS[status.unit]}/s"
    return f"{_duration(status.elapsed_s)} elapsed{eta}, {rate}"


def short(count: int) -> str:
    """Return a count in few characters: 950, 12.3k, 5.0M."""
    if count < 1_000:
        return str(count)
    return f"{count / 1_000:.1f}k" if count < 1_000_000 else f"{count / 1_000_000:.1f}M"


def _finished_line(row: Row, rounds: int) -> str:
    meta_step = int(row["meta_step"])
    parts = [f"meta-step {meta_step} finished ({meta_step + 1} of {rounds})"]
    for key, form in {
        "time/meta_step_s": "in {:,.1f} s",
        "agent_steps": "{:,.0f} agent steps so far",
        "examples": "{:,.0f} examples so far",
        "throughput/agent_steps_per_s": "{:,.0f} agent steps/s",
        "throughput/examples_per_s": "{:,.0f} examples/s",
        "meta/contribution_norm": "contribution {:.3g}",
        "meta/step_ratio": "step/initialization {:.2e}",
        "validation/gain": "validation gain {:+.2f}",
    }.items():
        if key in row:
            parts.append(form.format(row[key]))
    busy_s, waiting_s = row.get("time/working_s", 0), row.get("time/waiting_s", 0)
    if busy_s + waiting_s > 0:
        parts.append(f"trainers waited {waiting_s / (busy_s + waiting_s):.0%}")
    for key, what in {
        "tasks/dropped": "dropped",
        "tasks/restarted": "started again with another seed",
        "tasks/cut_off": "cut off",
    }.items():
        if row.get(key, 0) > 0:
            parts.append(f"{counted(int(row[key]), 'task')} {what}")
    return ", ".join(parts) + _scores(row)


def _scores(row: Row) -> str:
    for area, stat, form, words in (
        ("return", "mean", "{:.1f}", "mean return"),
        ("error", "validation", "{:.0%}", "validation error"),
    ):
        games = by_game(row, area, stat).items()
        values = [f"{game} {form.format(value)}" for game, value in games]
        if values:
            return f"; {words}: {_listed(values)}"
    return ""


def _listed(items: list[str]) -> str:
    more = len(items) - GAMES_IN_A_LINE
    return ", ".join(items[:GAMES_IN_A_LINE]) + (f", and {more} more" if more > 0 else "")


def counted(number: int, noun: str) -> str:
    """Return a number of things, as `1 task` or `2 tasks`."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def _duration(seconds: float) -> str:
    minutes, second = divmod(round(seconds), 60)
    hours, minute = divmod(minutes, 60)
    return f"{hours}:{minute:02}:{second:02}"
