from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

import pytest

from leap_rl.bench.agent import PARTS
from leap_rl.cli import main
from tests.commands import Refused


def json_of(words: str) -> dict[str, Any]:
    """What a command prints: one JSON object on one line, and nothing else."""
    command = [sys.executable, "-m", "leap_rl", *words.split(), "--json"]
    run = subprocess.run(command, capture_output=True, text=True)
    assert run.returncode == 0, run.stderr
    assert run.stdout.count("\n") == 1
    assert "leaked" not in run.stderr  # of what processes share
    metrics: dict[str, Any] = json.loads(run.stdout)
    return metrics


def test_throughput_prints_one_object_and_nothing_else() -> None:
    metrics = json_of("bench throughput --game phoenix --trainers 1 --seconds 0.2 --envs 2")
    assert (metrics["game"], metrics["trainers"], metrics["envs"]) == ("phoenix", 1, 2)
    assert 0 < metrics["agent_steps_per_s"] < metrics["emulator_limit_per_s"]
    ratio = metrics["agent_steps_per_s"] / metrics["emulator_limit_per_s"]
    assert metrics["fraction_of_limit"] == pytest.approx(ratio, rel=1e-3)
    assert tuple(metrics["split_us"]) == PARTS
    # All that a run does takes time; and the parts add up to the time of an agent step.
    assert all(metrics["split_us"][part] > 0 for part in PARTS if part != "waiting")
    assert sum(metrics["split_us"].values()) == pytest.approx(metrics["agent_step_us"], abs=0.1)
    assert len(metrics["windows"]["agent"]) == len(metrics["windows"]["limit"]) == 5
    assert 100 < metrics["resident_mb"] < 1500
    assert 0 <= metrics["others_cpu_share"] <= 1
    assert set(metrics["versions"]) == {"leap_rl", "torch", "ale_py", "numba"}
    assert {"processor", "precision", "unroll", "seconds", "date"} <= set(metrics)


@pytest.mark.slow
def test_throughput_measures_the_emulator_and_the_processes_that_are_asked_for() -> None:
    metrics = json_of(
        "bench throughput --game phoenix --trainers 1 --seconds 1 --envs 2 --env_processes 2 "
        "--atari.preset machado --atari.frameskip 2"
    )
    assert (metrics["env_processes"], metrics["atari"]["sticky"]) == (2, 0.25)
    assert metrics["atari"]["frameskip"] == 2
    # All that the environment processes do is under emulation, and the parts still add up.
    assert metrics["split_us"]["preprocessing"] == 0.0 < metrics["split_us"]["emulation"]
    assert sum(metrics["split_us"].values()) == pytest.approx(metrics["agent_step_us"], abs=0.1)
    assert 0 < metrics["agent_steps_per_s"] < metrics["emulator_limit_per_s"]
    assert 0 < metrics["fraction_by_cpu_time"] < 1
    assert metrics["resident_mb"] > 200  # of three processes


@pytest.mark.parametrize(
    ("words", "parts"),
    [
        ("fast", ["bench fast", "no such measurement", "throughput"]),
        ("throughput", ["game"]),
        ("throughput --game pongg", [": game: ", "'pongg'; did you mean 'pong'?"]),
        ("throughput --game xyzzy", [": game: ", "named 'xyzzy'", "leap-rl games"]),
        ("throughput --game pretraining", [": game = pretraining:", "pool of 25", "'air_raid'"]),
        ("throughput --game pong@mode=7", [": game: 'pong@mode=7'", "its modes are 0, 1"]),
        ("throughput --game CartPoll-v1", [": game: 'CartPoll-v1' cannot be made", "CartPole"]),
        ("throughput --game MinAtar/Pong-v1", [": game: 'MinAtar/Pong-v1'", "Breakout"]),
        ("throughput --game A-v0@x", [": game: ", "NAME@key=value"]),
        ("throughput --game CartPole-v1 --atari.preset machado", [": task.atari: has no effect"]),
        ("throughput --game CartPole-v1 --agent.encoder nature", ["agent.encoder = nature"]),
        ("throughput --game pong --env_processes 0", ["env_processes = 0", "at least 1"]),
        (
            "throughput --game pong --envs 2 --env_processes 3",
            ["env_processes = 3", "at most envs = 2"],
        ),
        ("throughput --game pong --atari.frameskip 0", [": atari.frameskip = 0", "at least 1"]),
        ("throughput --game pong --trainers 0", ["trainers = 0", "at least 1"]),
        ("throughput --game pong --seconds 0", ["seconds = 0.0", "greater than 0"]),
        ("throughput --game pong --envs 0", ["envs = 0", "at least 1"]),
        ("throughput --game pong --unroll 0", ["unroll = 0", "at least 1"]),
        ("throughput --game pong --sconds 1", ["sconds", "no such option", "seconds"]),
        ("throughput --game pong --agent.lr 0", ["agent.lr = 0.0"]),
    ],
)
def test_bad_input_gets_one_line(words: str, parts: list[str], refused: Refused) -> None:
    line = refused("bench", *words.split())
    assert all(part in line for part in parts), line


def test_a_missing_device_is_one_line(monkeypatch: pytest.MonkeyPatch, refused: Refused) -> None:
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    words = "bench throughput --game pong --agent.device cuda"
    assert "agent.device = cuda" in refused(*words.split())


def test_help_has_the_measurements_own_options_first(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["bench", "throughput", "--help"])
    head, _, text = capsys.readouterr().out.partition("\noptions:")
    assert "usage: leap-rl bench throughput" in head
    own = ["  --game GAME ", "  --seconds ", "  --envs ", "  --unroll "]
    own += ["  --trainers ", "  --env_processes "]
    places = [text.index(option) for option in [*own, "  --json", "  --atari.preset "]]
    assert places == sorted(places)
