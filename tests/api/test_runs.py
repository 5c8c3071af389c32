"""Runs from Python, and the processes that compute them."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import psutil
import pytest

import leap_rl
from leap_rl import LearnConfig, Run, RunFailedError, StopRun, TrainConfig
from leap_rl.cli import main
from leap_rl.runs.header import read_run
from leap_rl.runs.process import Ended, Request, RowLogged, call, decode_event, encode_event
from leap_rl.storage.locked_folder import RunFolderError
from leap_rl.storage.object_store import StoreError
from leap_rl.storage.run_folder import RunFolder

QUICK = {"runtime.kind": "local", "tracking.tensorboard": False, "task.agent_steps": 400}


def bowls(run_dir: Path, **options: Any) -> TrainConfig:
    return TrainConfig.from_yaml("debug", {**QUICK, "run_dir": str(run_dir), **options})


@pytest.fixture(scope="module")
def straight(tmp_path_factory: pytest.TempPathFactory) -> RunFolder:
    """The same run by the command line, undisturbed."""
    at = tmp_path_factory.mktemp("runs") / "straight"
    words = [f"--{name}={str(value).lower()}" for name, value in QUICK.items()]
    assert main(["train", "--config", "debug", *words, "--run_dir", str(at)]) == 0
    return RunFolder(at)


def test_a_run_that_a_callback_stops_is_resumed_to_the_bits_of_the_command_line(
    straight: RunFolder, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    seen: list[int] = []

    def first_alone(run: Run, row: Any) -> None:
        seen.append(row["meta_step"])
        raise StopRun

    # A far end, so that it is not reached before the callback is called.
    run = leap_rl.train(bowls(tmp_path / "run", **{"meta.meta_steps": 500}), [first_alone])
    assert "train: run folder" in capfd.readouterr().err
    assert seen == [0]
    assert 1 <= run.meta_step < 500
    further = {"meta.meta_steps": max(run.meta_step + 1, 3)}
    run = leap_rl.resume(run, [lambda run, row: seen.append(row["meta_step"])], options=further)
    assert run.finished
    assert seen[-1] == run.meta_step - 1
    name = "initialization.safetensors"
    there = (run.path / "checkpoints/000003" / name).read_bytes()
    assert there == (straight.checkpoint(3) / name).read_bytes()
    assert run.initialization == run.path / f"checkpoints/{run.meta_step:06d}" / name
    assert list(run.metrics()["meta_step"]) == list(range(run.meta_step))
    assert repr(run) == f"<Run {run.place}: train, {run.meta_step} meta-steps>"


def test_what_the_command_refuses_is_raised_with_its_line(
    straight: RunFolder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(ValueError, match=r"^run_dir = .*holds a run already"):
        leap_rl.train(bowls(straight.path), quiet=True)
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ValueError, match="nowhere"):
        leap_rl.evaluate(tmp_path / "nowhere", quiet=True)
    with pytest.raises(ValueError, match="'my method': a name has letters, digits"):
        leap_rl.evaluate({"my method": tmp_path}, quiet=True)
    with pytest.raises(ValueError, match="a,b': name a place without a comma"):
        leap_rl.evaluate({"mine": tmp_path / "a,b"}, quiet=True)
    assert not list((tmp_path / "runs").iterdir())
    with pytest.raises(ValueError, match="no run"):
        Run(tmp_path / "nowhere")


def test_what_is_given_in_a_wrong_place_is_said(straight: RunFolder, tmp_path: Path) -> None:
    before = straight.latest()
    wrong: Any = {"meta.meta_steps": 9}
    for callbacks in (wrong, print):
        with pytest.raises(ValueError, match=r"callbacks: must be functions in a list, .*options="):
            leap_rl.resume(straight.path, callbacks, quiet=True)
    assert straight.latest() == before
    for config in ("debug", LearnConfig(run_dir=str(tmp_path / "run"))):
        with pytest.raises(ValueError, match=r"^config: is a \w+; give a TrainConfig"):
            leap_rl.train(config, quiet=True)  # type: ignore[arg-type]
    assert not (tmp_path / "run").exists()
    assert TrainConfig.from_yaml("debug", {"run_dir": tmp_path / "run"}).run_dir == str(
        tmp_path / "run"
    )


def kill(run: Run, row: Any) -> None:
    holder = RunFolder(run.path).worker()
    if holder is not None:  # a row may have come before, with another one behind it
        os.kill(holder.pid, signal.SIGKILL)


def fail(run: Run, row: Any) -> None:
    raise ZeroDivisionError("mine")


@pytest.mark.parametrize(
    ("callback", "error", "said"),
    [(kill, RunFailedError, r"was killed \(SIGKILL\); resume"), (fail, ZeroDivisionError, "mine")],
)
def test_a_run_that_ends_early_says_why_and_can_be_resumed(
    callback: Callable[[Run, Any], None], error: type[Exception], said: str, tmp_path: Path
) -> None:
    config = bowls(tmp_path / "run", **{"meta.meta_steps": 500})
    with pytest.raises(error, match=said):
        leap_rl.train(config, [callback], quiet=True)
    assert RunFolder(tmp_path / "run").worker() is None, "the process is gone"
    assert Run(tmp_path / "run").meta_step >= 1


def test_learning_is_a_run_too(tmp_path: Path) -> None:
    like = bowls(tmp_path, **{"task.games": ["bowl_1"]})
    config = LearnConfig(
        run_dir=str(tmp_path / "run"),
        runtime=like.runtime,
        task=like.task,
        agent=like.agent,
        tracking=like.tracking,
    )
    run = leap_rl.learn(config, quiet=True)
    assert run.finished
    with pytest.raises(ValueError, match="only those of leap-rl train"):
        _ = run.initialization


def test_a_config_comes_from_a_name_or_a_file_and_from_what_is_given(tmp_path: Path) -> None:
    assert bowls(tmp_path, **{"meta.meta_steps": 7}).meta.meta_steps == 7
    (tmp_path / "mine.yaml").write_text("seed: 5\n")
    assert TrainConfig.from_yaml(tmp_path / "mine.yaml").seed == 5
    with pytest.raises(ValueError, match=r"^config = demoo: there is no such file; .*demo, "):
        TrainConfig.from_yaml("demoo")


# -- processes ------------------------------------------------------------------------------------

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
    lines = encode_event(RowLogged(values={"meta_step": 7})) + encode_event(Ended(status=0))
    answer(f"if os.fork() == 0: time.sleep(20); os._exit(0)\nos.write(pipe, {lines!r})")
    rows: list[Mapping[str, Any]] = []
    began_s = time.monotonic()
    call(ASKED, rows.append)
    assert time.monotonic() - began_s < 10
    assert rows == [{"meta_step": 7}]


@pytest.mark.parametrize(
    ("script", "error", "said"),
    [
        ("os._exit(0)", RunFailedError, "ended with status 0 before it had finished; resume its"),
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
from leap_rl.runs.header import to_mapping
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
