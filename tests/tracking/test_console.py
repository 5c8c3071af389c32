from __future__ import annotations

import io
import re
import sys
from dataclasses import replace

import pytest
from rich.console import Console as Terminal

from leap_rl.runs.monitor import SlowStarts
from leap_rl.tracking.config import ConsoleKind
from leap_rl.tracking.console import History, PlainConsole, RichConsole, make_console
from leap_rl.tracking.status import RunStatus, TaskStatus

LONG_NAME = "a_game_whose_name_is_longer_than_any_terminal_is_wide_" * 3
ROW = {
    "meta_step": 12,
    "agent_steps": 80_000_000,
    "time/meta_step_s": 61.25,
    "throughput/agent_steps_per_s": 12_345.6,
    "meta/contribution_norm": 0.5,
    "meta/step_ratio": 0.00123,
    "time/busy_share": 0.9,
    "return/pong/mean": -20.25,
    "return/breakout/mean": 3.0,
}


def task(
    slot: int, game: str = "pong", *, agent_steps: int = 1_250_000, mean: float | None = -20.5
) -> TaskStatus:
    return TaskStatus(
        slot=slot,
        game=game,
        trainer=f"trainer-{slot}",
        attempt=1,
        agent_steps=agent_steps,
        agent_steps_per_s=1_234.0,
        mean_return=mean,
    )


VIEW = RunStatus(
    round=0,
    rounds=100,
    slots_complete=3,
    slots_total=16,
    running=(task(3), task(4, "breakout", mean=None)),
    agent_steps_total=5_000_000,
)
IDLE = replace(VIEW, running=(), slots_complete=0)


def plain(*views: RunStatus, every_s: float = 10.0) -> list[str]:
    stream = io.StringIO()
    with PlainConsole(stream, every_s=every_s) as console:
        for view in views:
            console.show(view)
    return stream.getvalue().splitlines()


def at(elapsed_s: float, **changes: object) -> RunStatus:
    return replace(VIEW, elapsed_s=elapsed_s, **changes)


@pytest.mark.parametrize(
    ("status", "line"),
    [
        (IDLE, "training: 100 meta-steps in all, 16 tasks each"),
        (
            replace(IDLE, round=12),
            "training: from meta-step 12, 100 meta-steps in all, 16 tasks each",
        ),
        (
            replace(IDLE, command="learn", rounds=1, slots_total=1, last_row={"agent_steps": 5}),
            "learning: 1 game",  # and no finished meta-step
        ),
    ],
)
def test_plain_says_at_the_start_what_is_to_come(status: RunStatus, line: str) -> None:
    assert plain(status) == [line]


MANY = tuple(task(slot, game=LONG_NAME if slot == 9 else f"g{slot}") for slot in range(40))
FLAVOURS = ("MinAtar/Asterix-v1", "MinAtar/Breakout-v1@sticky_action_prob=0.5")


@pytest.mark.parametrize(
    ("status", "line"),
    [
        (
            at(3723.0),
            "meta-step 1 of 100, 3 of 16 tasks done, 1:02:03 elapsed, 2,468 agent steps/s: "
            "pong 25% return -20.5, breakout 25%",
        ),
        (at(3.0, running=MANY), "g3 25% return -20.5, and 36 more"),
        (
            at(9.0, round=100, slots_complete=0, slots_total=0),
            "meta-step 100 of 100, 0 of 0 tasks done, 0:00:09 elapsed, 2,468 agent steps/s: "
            "pong 25% return -20.5, breakout 25%",
        ),
        (
            replace(IDLE, last_row=ROW),
            "meta-step 12 finished (13 of 100), in 61.2 s, 80,000,000 agent steps so far, "
            "12,346 agent steps/s, contribution 0.5, step/initialization 1.23e-03, "
            "trainers busy 90%; mean return: pong -20.2, breakout 3.0",
        ),
        (
            replace(IDLE, last_row={"meta_step": 0, **{f"return/{n}/mean": 1.0 for n in FLAVOURS}}),
            f"; mean return: {FLAVOURS[0]} 1.0, {FLAVOURS[1]} 1.0",
        ),
    ],
    ids=["progress", "many games", "after the end", "finished", "names with a slash"],
)
def test_plain_lines_have_the_metrics(status: RunStatus, line: str) -> None:
    first = replace(status, elapsed_s=0.0, last_row=None)
    (shown,) = plain(first, status, replace(status))[1:]  # each once
    assert shown.endswith(line)


def test_a_meta_step_without_metrics_has_a_line_too() -> None:
    following = replace(IDLE, last_row={"meta_step": 13, "agent_steps": 90_000_000})
    assert plain(replace(IDLE, last_row=ROW), following)[-1] == (
        "meta-step 13 finished (14 of 100), 90,000,000 agent steps so far"
    )


def test_plain_prints_its_first_progress_soon_and_then_now_and_then() -> None:
    views = [replace(IDLE, elapsed_s=float(s)) for s in range(5)]
    views += [at(5 + quarter / 4) for quarter in range(120)]  # tasks run from 5 s to 35 s
    lines = plain(*views)[1:]
    assert [re.search(r"0:00:\d\d", line)[0] for line in lines] == [  # type: ignore[index]
        "0:00:07",
        "0:00:17",
        "0:00:27",
    ]


def test_the_time_left_is_judged_by_the_pace_since_the_first_progress() -> None:
    # Resumed at meta-step 50 of 100; trainers start for 20 s, then a meta-step takes 10 s.
    resumed = replace(IDLE, round=50, elapsed_s=5.0, slots_complete=0)
    views = [at(25.0 + 10 * n, round=50 + n, slots_complete=0, running=()) for n in range(11)]
    history = History()
    left = [history.remaining_s(view) for view in (resumed, *views)]
    assert left[:3] == [None] * 3, "one meta-step does not tell when its trainers began"
    assert left[3:] == pytest.approx([10.0 * (50 - n) for n in range(2, 11)])


def test_running_tasks_count_as_parts_of_the_meta_step() -> None:
    half = task(0, agent_steps=2_500_000)
    idle = task(0, agent_steps=0)
    views = [
        at(10.0 * n, rounds=1, slots_complete=complete, slots_total=2, running=(one,))
        for n, (complete, one) in enumerate(((0, idle), (0, half), (1, half)))
    ]
    assert "about 0:00:05 left" in plain(*views)[-1]  # 1/4 and then 3/4, 10 s later


def rich(width: int, height: int = 24) -> tuple[RichConsole, io.StringIO]:
    stream = io.StringIO()
    terminal = Terminal(
        file=stream, force_terminal=True, width=width, height=height, color_system=None
    )
    return RichConsole(terminal), stream


def drawn(width: int, view: RunStatus, height: int = 24) -> list[str]:
    """The lines of one view's last drawing, as a terminal would show them."""
    console, stream = rich(width, height)
    with console:
        console.show(view)
        # Only what the live display draws last: the eraser that follows it is cut off below.
        assert console._live is not None
        start = len(stream.getvalue())
        console._live.refresh()
        text = stream.getvalue()[start:]
    lines = [re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", line).strip("\r") for line in text.split("\n")]
    return [line.rstrip() for line in lines]


@pytest.mark.parametrize("width", [60, 120])
def test_rich_draws_the_metrics_at_any_usual_width(width: int) -> None:
    lines = drawn(width, at(3723.0))
    assert all(len(line) <= width for line in lines)
    assert lines[0].startswith("meta-step 1 of 100 ")
    assert lines[0].endswith(" 3 of 16 tasks done")
    assert "━" in lines[0]
    assert lines[1] == "1:02:03 elapsed, 2,468 agent steps/s"
    assert lines[2].split() == ["game", "agent", "steps", "per", "s", "return"] + (
        ["trainer"] if width == 120 else []
    )
    end = ["trainer-3"] if width == 120 else []
    pong = lines[3].replace("━", " ").replace("╸", " ")
    assert pong.split() == ["pong", "1.2M/5.0M", "1,234", "-20.5", *end]
    assert "━" in lines[3]
    breakout = lines[4].replace("━", " ").replace("╸", " ")
    assert breakout.split()[:4] == ["breakout", "1.2M/5.0M", "1,234", "-"]
    assert len(lines) == 5


@pytest.mark.parametrize("width", [8, 30, 60, 120])
@pytest.mark.parametrize("height", [1, 6, 24])
def test_rich_stays_within_a_small_terminal(width: int, height: int) -> None:
    tasks = tuple(task(slot, game=LONG_NAME) for slot in range(40))
    lines = drawn(width, at(1.0, running=tasks), height)
    assert all(len(line) <= width for line in lines)
    assert len(lines) <= height
    if width >= 30 and height == 24:
        assert lines[-1] == "and 22 more running"
        assert sum("1.2M/5.0M" in line for line in lines) == 18  # the numbers are not cut
        assert lines[3].index("1.2M/5.0M") < 55  # nor far from the name on a wide terminal


def test_rich_clears_up_and_leaves_what_is_to_stay() -> None:
    stdout, stderr = sys.stdout, sys.stderr
    console, stream = rich(120)
    with console:
        console.show(VIEW)
        console.message("[bold]no markup[/bold]")
        console.show(replace(VIEW, last_row={"meta_step": 12, "agent_steps": 5}))
    text = stream.getvalue()
    assert "[bold]no markup[/bold]\n" in text
    assert text.count("meta-step 12 finished (13 of 100)") == 1
    assert text.rindex("\x1b[?25h") > text.rindex("\x1b[?25l")  # the cursor is back
    # The last thing that happens to the bars' lines is that they are erased.
    assert text.rindex("\x1b[2K") > text.rindex("1.2M/5.0M")
    assert (sys.stdout, sys.stderr) == (stdout, stderr)
    console.close()


class FakeTerminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize(("kind", "printed"), [("plain", "hello\n"), ("quiet", "")])
def test_a_console_prints_on_stderr(
    kind: ConsoleKind, printed: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with make_console(kind) as console:
        if kind == "quiet":
            console.show(VIEW)
        console.message("hello")
    captured = capsys.readouterr()
    assert (captured.out, captured.err) == ("", printed)


def test_auto_draws_only_on_a_terminal_that_can(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm-256color")
    assert isinstance(make_console("auto", stream=FakeTerminal()), RichConsole)
    assert isinstance(make_console("auto", stream=io.StringIO()), PlainConsole)
    monkeypatch.setenv("FORCE_COLOR", "1")  # colors in a log file are no terminal
    assert isinstance(make_console("auto", stream=io.StringIO()), PlainConsole)
    monkeypatch.setenv("TERM", "dumb")
    assert isinstance(make_console("auto", stream=FakeTerminal()), PlainConsole)


def test_a_task_that_does_not_begin_is_told_of_once() -> None:
    told, now = list[str](), [0.0]
    starts = SlowStarts(told.append, lambda: now[0])
    slow = TaskStatus(slot=1, game="cave", trainer="trainer-0", attempt=1)
    at_work = TaskStatus(slot=2, game="bowl", trainer="trainer-1", attempt=1, agent_steps=5)
    status = RunStatus(round=0, rounds=1, slots_complete=0, slots_total=2, running=(slow, at_work))
    for now[0] in (0.0, 299.0):
        starts.look(status)
    assert not told
    for now[0] in (300.0, 900.0):
        starts.look(status)
    assert [line.partition(":")[0] for line in told] == [
        "cave (slot 1, trainer-0) has had no update for 5 minutes"
    ]
    starts.look(replace(status, running=(replace(slow, attempt=2),)))
    assert len(told) == 1
