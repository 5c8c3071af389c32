from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import psutil
import pytest

from leap_rl import RunFailedError
from leap_rl.runs.header import read_run
from leap_rl.runs.process import Ended, Request, RowLogged, call, decode_event, encode_event
from leap_rl.storage.locked_folder import RunFolderError
from leap_rl.storage.object_store import StoreError
from leap_rl.storage.run_folder import RunFolder

ASKED = Request(action="resume", command="resume", place="runs/mine", quiet=True)
READ = "import json, os, sys, time; document = json.load(sys.stdin); pipe = document['events']\n"


@pytest.fixture
def answer(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Makes a script, which has read the request, answer in place of leap_rl."""
    start = subprocess.Popen

    def by(script: str) -> None:
        monkeypatch.setattr(
            subprocess,
            "Popen",
            lambda words, **options: start([sys.executable, "-c", READ + script], **options),
        )

    return by


def test_what_a_process_that_ended_has_started_holds_nobody_up(answer: Any) -> None:
    line = encode_event(RowLogged(values={"meta_step": 7}))
    answer(f"if os.fork() == 0: time.sleep(20); os._exit(0)\nos.write(pipe, {line!r})")
    rows: list[Mapping[str, Any]] = []
    began_s = time.monotonic()
    call(ASKED, rows.append)
    assert time.monotonic() - began_s < 10
    assert rows == [{"meta_step": 7}]


@pytest.mark.parametrize(
    ("script", "error", "said"),
    [
        ("sys.exit(3)", RunFailedError, "leap-rl resume ended with status 3"),
        ("sys.exit(143)", RunFailedError, "leap-rl resume was told to terminate; resume its run"),
        ("os.kill(os.getpid(), 9)", RunFailedError, r"was killed \(SIGKILL\); resume its run"),
        ("sys.exit(130)", KeyboardInterrupt, "^$"),
    ],
)
def test_a_process_that_does_not_say_how_it_ended_is_known_by_its_status(
    script: str, error: type[BaseException], said: str, answer: Any
) -> None:
    answer(script)
    with pytest.raises(error, match=said):
        call(ASKED)


@pytest.mark.parametrize("error", [ValueError, RunFolderError, RunFailedError, StoreError])
def test_an_error_is_of_the_class_that_the_run_raised(error: type[Exception], answer: Any) -> None:
    ended = Ended(status=1, error=error.__name__, message="mine: is damaged")
    assert decode_event(encode_event(ended)) == ended
    answer(f"os.write(pipe, {encode_event(ended)!r}); sys.exit(1)")
    with pytest.raises(error, match=r"^mine: is damaged$") as raised:
        call(ASKED)
    assert raised.type is error


CALLER = """
import os, sys
from leap_rl import TrainConfig
from leap_rl.runs.fingerprint import to_mapping
from leap_rl.runs.header import read_run
from leap_rl.runs.process import Request, call
place, stops = sys.argv[1:]
options = {"runtime.kind": "local", "tracking.console": "quiet", "meta.meta_steps": 1000000}
call(Request(
    action="make", command="train", place=place,
    config=to_mapping(TrainConfig.from_yaml("debug", options)),
    stops_with=os.getpid() if stops == "stops" else None,
))
"""


@pytest.mark.parametrize("stops", ["stops", "continues"])
def test_a_run_stops_with_its_caller_if_that_is_asked_for(stops: str, tmp_path: Path) -> None:
    folder = RunFolder(tmp_path / "run")
    caller = subprocess.Popen([sys.executable, "-c", CALLER, str(folder.path), stops])
    while not folder.latest():
        assert caller.poll() is None
        time.sleep(0.05)
    (child,) = psutil.Process(caller.pid).children()
    caller.kill()
    caller.wait()
    until_s = time.monotonic() + (30.0 if stops == "stops" else 3.0)
    while (is_at_work := folder.worker() is not None) and time.monotonic() < until_s:
        time.sleep(0.05)
    if stops == "continues":
        child.kill()
    assert is_at_work == (stops == "continues")
    assert folder.fall_back(read_run(folder).header.fingerprint) is None  # it can be resumed
