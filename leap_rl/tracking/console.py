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

from leap_rl.tracking.config import ConsoleKind
from leap_rl.tracking.console_lines import (
    UNITS,
    History,
    pace,
    place,
    progress_line,
    short,
    slots,
    start_line,
)
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
            self.message(start_line(status))
        if line := self._history.finished_line(status):
            self.message(line)
        eta_s = self._history.remaining_s(status)
        if self._next_s is None and status.running:
            self._next_s = status.elapsed_s + min(PLAIN_FIRST_S, self._every_s)
        if self._next_s is not None and status.elapsed_s >= self._next_s:
            self._next_s = status.elapsed_s + self._every_s
            self.message(progress_line(status, eta_s))

    def message(self, text: str) -> None:
        print(text, file=self._stream, flush=True)


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
        self._terminal.print(Text(text))  # above the bars, without markup

    def close(self) -> None:
        if self._live is not None:
            self._live.stop()
            self._live = None


class _Dashboard:
    """A status, laid out for the terminal's current size."""

    def __init__(self, status: RunStatus, eta_s: float | None) -> None:
        self._status = status
        self._eta_s = eta_s

    def __rich_console__(self, console: Terminal, options: ConsoleOptions) -> RenderResult:
        status = self._status
        head = Table.grid(expand=True, padding=(0, 1))
        for ratio in (None, 1, None):
            head.add_column(no_wrap=True, overflow="ellipsis", ratio=ratio)
        bar = ProgressBar(total=1.0, completed=status.round_fraction)
        head.add_row(Text(place(status)), bar, Text(slots(status)))
        yield head
        yield Text(pace(status, self._eta_s), no_wrap=True, overflow="ellipsis", style="dim")

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
        cells.append(f"{short(task.agent_steps)}/{short(total)}")
        cells.append(f"{task.agent_steps_per_s:,.0f}")
        if has_returns:
            cells.append("-" if task.mean_return is None else f"{task.mean_return:.1f}")
        if width >= WIDE:
            cells.append(Text(task.trainer, style="dim"))
        table.add_row(*cells)
    return table
