"""Progress of a run on stderr; stdout stays the command's own.

A console takes statuses at any rate and shows them at its own: bars on a terminal, occasional lines
elsewhere. Show a status at each commit too: of two meta-steps that finish between two statuses only
the second gets a line.
"""

from __future__ import annotations

import os
import sys
from typing import Self, TextIO

from rich.console import Console as Terminal
from rich.console import ConsoleOptions, RenderableType, RenderResult
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from leap_rl.core.lines import printable, say
from leap_rl.tracking.config import ConsoleKind
from leap_rl.tracking.metrics import UNITS, Row, by_game
from leap_rl.tracking.status import RunStatus, TaskStatus

REFRESHES_PER_S = 4
PLAIN_FIRST_S = 2.0
"""From the first status with a running task to the first line of progress."""
NARROW, WIDE = 50, 100
"""Least columns for a bar for each task, and for its trainer's name too."""


class Console:
    """Shows nothing; the base of all consoles. As a context manager it closes itself."""

    def show(self, status: RunStatus) -> None:
        """Take the run's newest status."""

    def message(self, text: str) -> None:
        """Print one line that stays."""

    def close(self) -> None:
        """Restore the terminal. May be called twice."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()


def make_console(kind: ConsoleKind, *, stream: TextIO | None = None) -> Console:
    """Return a console on `stream`, by default stderr; `auto` is `rich` on a capable terminal."""
    stream = sys.stderr if stream is None else stream
    if kind == "auto":
        can_draw = stream.isatty() and os.environ.get("TERM") not in ("dumb", "unknown")
        kind = "rich" if can_draw else "plain"
    if kind == "rich":
        return RichConsole(Terminal(file=stream, force_terminal=True))
    return PlainConsole(stream) if kind == "plain" else Console()


def print_status(status: RunStatus, stream: TextIO) -> None:
    """Print one snapshot with all its tasks; the time left needs two."""
    Terminal(file=stream, height=len(status.running) + 8).print(_Dashboard(status, None))


class PlainConsole(Console):
    """Prints a line at the start, every `every_s` of the run's time, and for each meta-step."""

    def __init__(self, stream: TextIO, *, every_s: float = 10.0) -> None:
        self._stream = stream
        self._every_s = every_s
        self._started = False
        self._next_s: float | None = None
        self._history = History()

    def show(self, status: RunStatus) -> None:
        if not self._started:
            self._started = True
            self.message(_start_line(status))
        if line := self._history.finished_line(status):
            self.message(line)
        eta_s = self._history.remaining_s(status)
        if self._next_s is None and status.running:
            self._next_s = status.elapsed_s + min(PLAIN_FIRST_S, self._every_s)
        if self._next_s is not None and status.elapsed_s >= self._next_s:
            self._next_s = status.elapsed_s + self._every_s
            self.message(_progress_line(status, eta_s))

    def message(self, text: str) -> None:
        say(text, file=self._stream)


class RichConsole(Console):
    """Draws a bar for the meta-step and a line for each running task; erases them at the end."""

    def __init__(self, terminal: Terminal) -> None:
        self._terminal = terminal
        self._live: Live | None = None
        self._history = History()

    def show(self, status: RunStatus) -> None:
        if self._live is None:
            self._live = Live(
                console=self._terminal,
                refresh_per_second=REFRESHES_PER_S,
                transient=True,
                # Printed lines appear above the bars; a piped stdout is left alone.
                redirect_stdout=sys.stdout.isatty(),
            )
            self._live.start()
        if line := self._history.finished_line(status):
            self.message(line)
        self._live.update(_Dashboard(status, self._history.remaining_s(status)))

    def message(self, text: str) -> None:
        self._terminal.print(Text(printable(text)))  # above the bars, without markup

    def close(self) -> None:
        if self._live is not None:
            self._live.stop()
            self._live = None


class _Dashboard:
    def __init__(self, status: RunStatus, eta_s: float | None) -> None:
        self._status = status
        self._eta_s = eta_s

    def __rich_console__(self, console: Terminal, options: ConsoleOptions) -> RenderResult:
        status = self._status
        head = Table.grid(expand=True, padding=(0, 1))
        for ratio in (None, 1, None):
            head.add_column(no_wrap=True, overflow="ellipsis", ratio=ratio)
        bar = ProgressBar(total=1.0, completed=status.round_fraction)
        head.add_row(Text(_place(status)), bar, Text(_slots_done(status)))
        yield head
        yield Text(_pace(status, self._eta_s), no_wrap=True, overflow="ellipsis", style="dim")

        # A live display that is taller than the terminal cannot be redrawn in place.
        room = max(options.size.height - 5, 1)
        running = status.running
        shown = running if len(running) <= room else running[: room - 1]
        yield _task_table(shown, status, width=options.max_width)
        if len(shown) < len(running):
            yield Text(f"and {len(running) - len(shown)} more running", style="dim")


def _task_table(tasks: tuple[TaskStatus, ...], run: RunStatus, *, width: int) -> Table:
    table = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False, header_style="dim")
    # rich narrows columns that may wrap first: a long name is cut before any number.
    table.add_column("game", max_width=36)
    if width >= NARROW:
        table.add_column(width=10)
    has_returns = run.unit == "agent_steps"
    for header in (UNITS[run.unit], "per s", *(["return"] if has_returns else [])):
        table.add_column(header, no_wrap=True, justify="right")
    if width >= WIDE:
        table.add_column("trainer", no_wrap=True, overflow="ellipsis")
    total = run.agent_steps_total
    for task in tasks:
        cells: list[RenderableType] = [Text(task.game, no_wrap=True, overflow="ellipsis")]
        if width >= NARROW:
            cells.append(ProgressBar(total=total, completed=task.agent_steps, width=10))
        cells.append(f"{_short(task.agent_steps)}/{_short(total)}")
        cells.append(f"{task.agent_steps_per_s:,.0f}")
        if has_returns:
            cells.append("-" if task.mean_return is None else f"{task.mean_return:.1f}")
        if width >= WIDE:
            cells.append(Text(task.trainer, style="dim"))
        table.add_row(*cells)
    return table


GAMES_IN_A_LINE = 4
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


def _start_line(status: RunStatus) -> str:
    if status.command in _SLOTS:
        return f"learning: {counted(status.slots_total, _SLOTS[status.command])}"
    start = f"from meta-step {status.round}, " if status.round else ""
    batch = counted(status.slots_total, "task")
    return f"training: {start}{counted(status.rounds, 'meta-step')} in all, {batch} each"


def _progress_line(status: RunStatus, eta_s: float | None) -> str:
    tasks = [
        f"{task.game} {task.agent_steps / status.agent_steps_total:.0%}"
        + ("" if (mean := task.mean_return) is None else f" return {mean:.1f}")
        for task in status.running
    ]
    line = f"{_place(status)}, {_slots_done(status)}, {_pace(status, eta_s)}"
    return f"{line}: {_listed(tasks)}" if tasks else line


def _place(status: RunStatus) -> str:
    if status.command in _SLOTS:
        return "learning"
    return f"meta-step {min(status.round + 1, status.rounds)} of {status.rounds}"


def _slots_done(status: RunStatus) -> str:
    noun = _SLOTS.get(status.command, "task")
    return f"{status.slots_complete} of {counted(status.slots_total, noun)} done"


def _pace(status: RunStatus, eta_s: float | None) -> str:
    eta = "" if eta_s is None else f", about {_duration(eta_s)} left"
    rate = f"{status.agent_steps_per_s:,.0f} {UNITS[status.unit]}/s"
    return f"{_duration(status.elapsed_s)} elapsed{eta}, {rate}"


def _short(count: int) -> str:
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
        "time/busy_share": "trainers busy {:.0%}",
    }.items():
        if key in row:
            parts.append(form.format(row[key]))
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
