"""Runs and evaluations from Python, and the processes that compute them."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

import leap_rl
from leap_rl import Evaluation, LearnConfig, Run, RunFailedError, StopRun, TrainConfig
from leap_rl.cli import main
from leap_rl.core.parsing import to_cli_args
from leap_rl.runs.child import serve
from leap_rl.runs.process import Ended, Request, RowLogged, call, decode_event, encode_event
from leap_rl.storage.locked_folder import RunFolderError
from leap_rl.storage.object_store import StoreError
from leap_rl.storage.run_folder import RunFolder
from tests.end_to_end.whole_runs import stopped_after

pytestmark = pytest.mark.usefixtures("without_plots")

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


# -- evaluations and encoders ---------------------------------------------------------------------

LOCALLY = {"runtime.kind": "local", "tracking.tensorboard": False}
CATCH = {
    **LOCALLY,
    "task.kind": "catch",
    "task.games": ["catch"],
    "task.num_envs": 4,
    "task.agent_steps": 80,
    "agent.lr": 0.003,
    "meta.batch_size": 2,
    "meta.meta_steps": 2,
}


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    at = tmp_path_factory.mktemp("runs") / "mine"
    assert main(["train", *to_cli_args(CATCH), "--run_dir", str(at)]) == 0
    return Run(at)


def test_an_evaluation_says_what_its_folder_says(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = leap_rl.evaluate(
        {"leap": [run]},
        games=["catch_dark"],
        seeds=2,
        run_dir=tmp_path / "one",
        options=LOCALLY,
        quiet=True,
    )
    assert found.finished
    assert found.verdict.startswith("leap against random: ")
    assert Evaluation(tmp_path / "one").verdict == found.verdict
    agents = found.agents()
    assert sorted(agents["initialization"]) == ["leap"] * 2 + ["random"] * 2
    comparisons = found.comparisons()
    assert list(comparisons["game"]) == ["catch_dark", "all games"]
    assert (comparisons["area low"] <= comparisons["area"]).all()
    monkeypatch.setattr(
        "leap_rl.runs.api.evaluations.call", lambda request: serve(request, lambda row: None)
    )
    assert found.report().read_text().startswith("<!doctype html>")


def test_an_evaluation_says_more_once_it_is_resumed(run: Run, tmp_path: Path) -> None:
    words = ["evaluate", "--init", run.place, "--games", "catch", "--seeds", "2"]
    with stopped_after(3):
        assert main([*words, *to_cli_args(LOCALLY), "--run_dir", str(tmp_path / "one")]) == 130
    found = Evaluation(tmp_path / "one")
    assert len(found.agents()) == 3
    before = found.verdict
    resumed = leap_rl.resume(found, quiet=True)
    assert len(found.agents()) == len(resumed.agents()) == 4
    assert found.verdict == resumed.verdict != before


def test_what_is_no_evaluation_is_said(run: Run) -> None:
    with pytest.raises(ValueError, match="no evaluation"):
        Evaluation(run.place)


def test_an_encoder_is_that_of_its_run(run: Run, tmp_path: Path) -> None:
    saved = load_file(run.initialization)
    (run.path / "README.md").write_text("Mine.")  # a run it stays
    for of in (run, run.place, f"{run.place}@2", run.path):
        encoder = leap_rl.load_encoder(of)
        state = encoder.state_dict()
        assert state.keys() == saved.keys()
        assert all(torch.equal(state[name], saved[name]) for name in saved)
    assert main(["export", run.place, "--out", str(tmp_path / "mine")]) == 0
    exported = leap_rl.load_encoder(tmp_path / "mine").state_dict()
    assert all(torch.equal(exported[name], saved[name]) for name in saved)
    (tmp_path / "alone.safetensors").write_bytes(run.initialization.read_bytes())
    with pytest.raises(ValueError, match="lies in no run, so its network is not known"):
        leap_rl.load_encoder(tmp_path / "alone.safetensors")


def test_loading_an_encoder_starts_nothing_and_changes_nothing() -> None:
    script = """
import sys, torch
before = torch.get_num_threads(), torch.get_deterministic_debug_mode()
import leap_rl
encoder = leap_rl.load_encoder("pretrained:minatar-leap")
assert encoder(torch.zeros(2, 10, 10, 3, dtype=torch.uint8)).shape == (2, encoder.features)
assert before == (torch.get_num_threads(), torch.get_deterministic_debug_mode())
assert not {"ray", "ale_py", "wandb", "matplotlib"} & sys.modules.keys()
"""
    subprocess.run([sys.executable, "-c", script], check=True)
