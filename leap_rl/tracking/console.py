"""What the user sees while a run goes on, on stderr, so that stdout stays the command's own.

A console is handed views of the run, at any pace and from any loop, and shows them at its own: bars
on a terminal, a line now and then elsewhere. Show a view at each commit too, or two meta-steps that
finish between two views get one line.
"""

from __future__ import annotations

import os
import sys
from abc import ABC, abstractmethod
from typing import Self, TextIO

from rich.console import Console as Terminal
from rich.console import ConsoleOptions, RenderableType, RenderResult
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from leap_rl.tracking.config import ConsoleKind
from leap_rl.tracking.metrics import Row, Unit
from leap_rl.tracking.views import RunView, TaskView

__all__ = ["Console", "PlainConsole", "QuietConsole", "RichConsole", "RunView", "TaskView"]
__all__ += ["make_console", "print_view"]

REFRESHES_PER_S = 4
PLAIN_FIRST_S = 2.0
"""From the first view that has a running task to the first line of progress."""
GAMES_IN_A_LINE = 4
NARROW, WIDE = 50, 100
"""Columns from which each task has a bar, and from which its trainer's name is shown too."""
_SLOTS = {"learn": "game", "evaluate": "agent"}
"""What a slot is called in runs that have no meta-steps."""
_WORDS: dict[Unit, str] = {"agent_steps": "agent steps", "examples": "examples"}


class Console(ABC):
    """Shows a run. As a context manager it closes itself, after an exception as well."""

    @abstractmethod
    def show(self, view: RunView) -> None:
        """Take the run's newest view."""

    @abstractmethod
    def message(self, text: str) -> None:
        """Print one line that stays."""

    @abstractmethod
    def close(self) -> None:
        """Leave the terminal as it was found. May be called twice."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()


def make_console(
    kind: ConsoleKind, *, stream: TextIO | None = None, plain_every_s: float = 10.0
) -> Console:
    """The console of a kind; `auto` is `rich` on a terminal that can move its cursor, else `plain`.

    Args:
        kind: `auto`, `rich`, `plain` or `quiet`.
        stream: where to print; stderr by default.
        plain_every_s: at least so long between two lines of progress of a plain console.
    """
    stream = sys.stderr if stream is None else stream
    if kind == "auto":
        can_draw = stream.isatty() and os.environ.get("TERM") not in ("dumb", "unknown")
        kind = "rich" if can_draw else "plain"
    if kind == "rich":
        return RichConsole(Terminal(file=stream, force_terminal=True))
    if kind == "plain":
        return PlainConsole(stream, every_s=plain_every_s)
    return QuietConsole()


def print_view(view: RunView, stream: TextIO) -> None:
    """Print one view as it would be drawn, with all its tasks and no time left, which takes two."""
    rows = len(view.tasks) + 8
    Terminal(file=stream, height=rows).print(_Dashboard(view, None))


class QuietConsole(Console):
    """Shows nothing."""

    def show(self, view: RunView) -> None:
        """Show nothing."""

    def message(self, text: str) -> None:
        """Print nothing."""

    def close(self) -> None:
        """There is nothing to leave."""


class PlainConsole(Console):
    """Prints lines: one at the start, one now and then, one for each finished meta-step.

    Args:
        stream: where to print.
        every_s: at least so long between two lines of progress, by the views' `elapsed_s`.
    """

    def __init__(self, stream: TextIO, *, every_s: float = 10.0) -> None:
        self._stream = stream
        self._every_s = every_s
        self._started = False
        self._next_s: float | None = None
        self._finished = _FinishedMetaSteps()
        self._eta = _Eta()

    def show(self, view: RunView) -> None:
        """Print what is due."""
        if not self._started:
            self._started = True
            self.message(_start_line(view))
        if line := self._finished.line(view):
            self.message(line)
        eta_s = self._eta.remaining_s(view)
        if self._next_s is None and view.tasks:
            self._next_s = view.elapsed_s + min(PLAIN_FIRST_S, self._every_s)
        if self._next_s is not None and view.elapsed_s >= self._next_s:
            self._next_s = view.elapsed_s + self._every_s
            self.message(_progress_line(view, eta_s))

    def message(self, text: str) -> None:
        """Print `text` as a line."""
        print(text, file=self._stream, flush=True)

    def close(self) -> None:
        """Nothing is left to print: lines are flushed as they come."""


class RichConsole(Console):
    """Draws a bar for the meta-step and a line for each running task, and clears them at the end.

    Args:
        terminal: the rich console to draw on.
    """

    def __init__(self, terminal: Terminal) -> None:
        self._terminal = terminal
        self._live: Live | None = None
        self._finished = _FinishedMetaSteps()
        self._eta = _Eta()

    def show(self, view: RunView) -> None:
        """Draw `view` at the next refresh; lines of finished meta-steps stay above the bars."""
        if self._live is None:
            self._live = Live(
                console=self._terminal,
                refresh_per_second=REFRESHES_PER_S,
                transient=True,
                # What is printed meanwhile goes above the bars; a piped stdout is left alone.
                redirect_stdout=sys.stdout.isatty(),
            )
            self._live.start()
        if line := self._finished.line(view):
            self.message(line)
        self._live.update(_Dashboard(view, self._eta.remaining_s(view)))

    def message(self, text: str) -> None:
        """Print `text` above the bars, as it is: no markup."""
        self._terminal.print(Text(text))

    def close(self) -> None:
        """Erase the bars and give the cursor back."""
        if self._live is not None:
            self._live.stop()
            self._live = None


class _Dashboard:
    """One view, laid out again for whatever size the terminal has when it is drawn."""

    def __init__(self, view: RunView, eta_s: float | None) -> None:
        self._view = view
        self._eta_s = eta_s

    def __rich_console__(self, console: Terminal, options: ConsoleOptions) -> RenderResult:
        view = self._view
        head = Table.grid(expand=True, padding=(0, 1))
        head.add_column(no_wrap=True, overflow="ellipsis")
        head.add_column(ratio=1)
        head.add_column(no_wrap=True, overflow="ellipsis")
        bar = ProgressBar(total=1.0, completed=_meta_step_fraction(view))
        head.add_row(Text(_place(view)), bar, Text(_slots(view)))
        yield head
        yield Text(_pace(view, self._eta_s), no_wrap=True, overflow="ellipsis", style="dim")

        # Taller than the terminal, a live display cannot be redrawn in place.
        room = max(options.size.height - 5, 1)
        shown = view.tasks if len(view.tasks) <= room else view.tasks[: room - 1]
        yield _task_table(shown, width=options.max_width, unit=view.unit)
        if len(shown) < len(view.tasks):
            yield Text(f"and {len(view.tasks) - len(shown)} more running", style="dim")


def _task_table(tasks: tuple[TaskView, ...], *, width: int, unit: Unit) -> Table:
    table = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False, header_style="dim")
    # Columns that may wrap are narrowed first: a long name is cut before any number is.
    table.add_column("game", max_width=36)
    if width >= NARROW:
        table.add_column(width=10)
    played = unit == "agent_steps"
    for header in (_WORDS[unit], "per s", *(["return"] if played else [])):
        table.add_column(header, no_wrap=True, justify="right")
    if width >= WIDE:
        table.add_column("trainer", no_wrap=True, overflow="ellipsis")
    for task in tasks:
        cells: list[RenderableType] = [Text(task.game, no_wrap=True, overflow="ellipsis")]
        if width >= NARROW:
            bar = ProgressBar(total=task.agent_steps_total, completed=task.agent_steps, width=10)
            cells.append(bar)
        cells.append(f"{_short(task.agent_steps)}/{_short(task.agent_steps_total)}")
        cells.append(f"{task.agent_steps_per_s:,.0f}")
        if played:
            cells.append("-" if task.mean_return is None else f"{task.mean_return:.1f}")
        if width >= WIDE:
            cells.append(Text(task.trainer, style="dim"))
        table.add_row(*cells)
    return table


class _FinishedMetaSteps:
    """Says each finished meta-step once."""

    def __init__(self) -> None:
        self._said: float | None = None

    def line(self, view: RunView) -> str | None:
        if view.kind != "train" or view.last_row is None:
            return None
        if view.last_row["meta_step"] == self._said:
            return None
        self._said = view.last_row["meta_step"]
        return _finished_line(view.last_row, view.meta_steps)


class _Eta:
    """Time to the end at the pace since the first view, so that a resumed run is judged aright."""

    def __init__(self) -> None:
        self._first: tuple[float, float] | None = None

    def remaining_s(self, view: RunView) -> float | None:
        done = min((view.meta_step + _meta_step_fraction(view)) / view.meta_steps, 1.0)
        if self._first is None:
            self._first = done, view.elapsed_s
        gained = done - self._first[0]
        if gained <= 0:
            return None
        return (1.0 - done) / gained * (view.elapsed_s - self._first[1])


def _meta_step_fraction(view: RunView) -> float:
    running = sum(task.agent_steps / task.agent_steps_total for task in view.tasks)
    return min((view.slots_done + running) / view.slots_total, 1.0) if view.slots_total else 0.0


def _start_line(view: RunView) -> str:
    if view.kind in _SLOTS:
        return f"learning: {_count(view.slots_total, _SLOTS[view.kind])}"
    start = f"from meta-step {view.meta_step}, " if view.meta_step else ""
    batch = _count(view.slots_total, "task")
    return f"training: {start}{_count(view.meta_steps, 'meta-step')} in all, {batch} each"


def _progress_line(view: RunView, eta_s: float | None) -> str:
    tasks = [
        f"{task.game} {task.agent_steps / task.agent_steps_total:.0%}"
        + ("" if task.mean_return is None else f" return {task.mean_return:.1f}")
        for task in view.tasks
    ]
    line = f"{_place(view)}, {_slots(view)}, {_pace(view, eta_s)}"
    return f"{line}: {_listed(tasks)}" if tasks else line


def _finished_line(row: Row, meta_steps: int) -> str:
    meta_step = int(row["meta_step"])
    parts = [f"meta-step {meta_step} finished ({meta_step + 1} of {meta_steps})"]
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
    for key, what in (
        ("tasks/dropped", "dropped"),
        ("tasks/restarted", "started again with another seed"),
        ("tasks/cut_off", "cut off"),
    ):
        if row.get(key, 0) > 0:
            parts.append(f"{_count(int(row[key]), 'task')} {what}")
    for area, stat, form, words in (
        ("return", "mean", "{:.1f}", "mean return"),
        ("error", "validation", "{:.0%}", "validation error"),
    ):
        values = [
            # The whole name, slash and all: MinAtar/Asterix-v1.
            f"{key.removeprefix(f'{area}/').removesuffix(f'/{stat}')} {form.format(value)}"
            for key, value in row.items()
            if key.startswith(f"{area}/") and key.endswith(f"/{stat}")
        ]
        if values:
            return f"{', '.join(parts)}; {words}: {_listed(values)}"
    return ", ".join(parts)


def _place(view: RunView) -> str:
    if view.kind in _SLOTS:
        return "learning"
    return f"meta-step {min(view.meta_step + 1, view.meta_steps)} of {view.meta_steps}"


def _slots(view: RunView) -> str:
    return f"{view.slots_done} of {_count(view.slots_total, _SLOTS.get(view.kind, 'task'))} done"


def _pace(view: RunView, eta_s: float | None) -> str:
    eta = "" if eta_s is None else f", about {_duration(eta_s)} left"
    rate = f"{view.agent_steps_per_s:,.0f} {_WORDS[view.unit]}/s"
    return f"{_duration(view.elapsed_s)} elapsed{eta}, {rate}"


def _listed(items: list[str]) -> str:
    more = len(items) - GAMES_IN_A_LINE
    return ", ".join(items[:GAMES_IN_A_LINE]) + (f", and {more} more" if more > 0 else "")


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def _duration(seconds: float) -> str:
    minutes, second = divmod(round(seconds), 60)
    hours, minute = divmod(minutes, 60)
    return f"{hours}:{minute:02}:{second:02}"


def _short(count: int) -> str:
    """A count in few characters: 950, 12.3k, 5.0M."""
    if count < 1_000:
        return str(count)
    return f"{count / 1_000:.1f}k" if count < 1_000_000 else f"{count / 1_000_000:.1f}M"
