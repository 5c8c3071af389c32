from __future__ import annotations

import json
import os
import time
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest

from leap_rl.tracking.console import Console
from leap_rl.tracking.live import LIVE, LiveConsole, read_live
from leap_rl.tracking.status import RunStatus, TaskStatus

TASK = TaskStatus(
    slot=3,
    game="freeway@mode=4",
    trainer="trainer-0",
    attempt=1,
    agent_steps=10,
    agent_steps_per_s=2.5,
)
VIEW = RunStatus(
    round=1,
    rounds=3,
    slots_complete=0,
    slots_total=2,
    running=(TASK, replace(TASK, slot=4, agent_steps=0, mean_return=-1.5)),
    agent_steps_total=100,
    elapsed_s=60.0,
    last_row={"meta_step": 0, "return/pong/mean": 1.0},
)


class Recorder(Console):
    """Another console, which remembers."""

    def __init__(self) -> None:
        self.calls: list[object] = []

    def show(self, view: RunStatus) -> None:
        self.calls.append(view)

    def message(self, text: str) -> None:
        self.calls.append(text)

    def close(self) -> None:
        self.calls.append("closed")


class Clock:
    now_s = 100.0

    def __call__(self) -> float:
        return self.now_s


def test_a_view_is_read_as_it_was_shown(tmp_path: Path) -> None:
    shown = Recorder()
    with LiveConsole(shown, tmp_path) as console:
        console.message("hello")
        console.show(VIEW)
        live = read_live(tmp_path)
        assert live is not None
        assert replace(live.status, elapsed_s=VIEW.elapsed_s) == VIEW
        assert live.age_s < 30
    assert shown.calls == ["hello", VIEW, "closed"]


def test_the_time_since_it_was_written_has_elapsed_too(tmp_path: Path) -> None:
    with LiveConsole(Recorder(), tmp_path) as console:
        console.show(VIEW)
        document = json.loads((tmp_path / LIVE).read_text())
        for written_s, elapsed_s in ((-7, pytest.approx(67, abs=5)), (1000, 60)):  # another's clock
            document["written"] = time.time() + written_s
            (tmp_path / LIVE).write_text(json.dumps(document))
            assert (live := read_live(tmp_path)) is not None
            assert live.status.elapsed_s == elapsed_s


def test_it_is_written_once_in_a_while_and_gone_at_the_end(tmp_path: Path) -> None:
    (tmp_path / LIVE).write_text("of a killed driver")
    clock = Clock()
    console = LiveConsole(Recorder(), tmp_path, every_s=1.0, clock=clock)
    assert list(tmp_path.iterdir()) == []
    seen = []
    for tick in range(10):
        clock.now_s = 100.0 + 0.25 * tick
        console.show(replace(VIEW, round=tick))
        live = read_live(tmp_path)
        assert live is not None
        seen.append(live.status.round)
    assert seen == [0, 0, 0, 0, 4, 4, 4, 4, 8, 8]
    console.close()
    assert list(tmp_path.iterdir()) == []
    console.close()  # may be called twice


def test_a_full_disk_does_not_end_the_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*args: Any, **kwargs: Any) -> int:
        raise OSError(28, "No space left on device")

    shown = Recorder()
    with LiveConsole(shown, tmp_path) as console:
        monkeypatch.setattr(os, "open", full)
        console.show(VIEW)
        monkeypatch.undo()
    assert shown.calls == [VIEW, "closed"]


def test_it_does_not_write_through_a_link(tmp_path: Path) -> None:
    run, victim = tmp_path / "run", tmp_path / "victim"
    run.mkdir()
    victim.write_text("mine")
    with LiveConsole(Recorder(), run) as console:
        (run / LIVE).symlink_to(victim)
        console.show(VIEW)
        assert not (run / LIVE).is_symlink()
    assert victim.read_text() == "mine"


@pytest.mark.parametrize(
    "change",
    [
        {"command": "\x1b]0;owned\x07"},
        {"command": 4},
        {"round": "1"},
        {"rounds": 0},
        {"agent_steps_total": 0},
        {"elapsed_s": float("inf")},
        {"last_row": {"a": "b"}},
        {"last_row": {"a\x1b": 1}},
        {"last_row": [1]},
        {"last_row": {"a": 1}, "command": "train"},
        {"unit": "frames"},
        {"unit": []},
        {"running": [{}]},
        {"running": [{**asdict(TASK), "game": "\x1b[2J"}]},
        {"running": [{**asdict(TASK), "mean_return": "high"}]},
        {"running": [{**asdict(TASK), "agent_steps_per_s": float("nan")}]},
        {"running": None},
        {"more": 1},
    ],
    ids=str,
)
def test_a_strangers_file_is_shown_only_if_it_is_a_view(
    tmp_path: Path, change: dict[str, object]
) -> None:
    with LiveConsole(Recorder(), tmp_path) as console:
        console.show(VIEW)
        path = tmp_path / LIVE
        document = json.loads(path.read_text())
        assert read_live(tmp_path) is not None
        document["status"].update(change)
        path.write_text(json.dumps(document))
        assert read_live(tmp_path) is None


@pytest.mark.parametrize("text", ["", "[", "[]", "{}", "null", '{"status": 1}', '{"status": {}}'])
def test_what_is_no_view_is_none(tmp_path: Path, text: str) -> None:
    (tmp_path / LIVE).write_text(text)
    assert read_live(tmp_path) is None
    assert read_live(tmp_path / "nowhere") is None
