from __future__ import annotations

import json
import subprocess
import sys

import pytest

from leap_rl.bench.agent import PARTS
from leap_rl.cli import main
from leap_rl.cli.bench import join_list


def error_of(capsys: pytest.CaptureFixture[str], *argv: str) -> str:
    assert main(argv) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.count("\n") == 1, captured.err
    return captured.err


def test_throughput_prints_one_object_and_nothing_else() -> None:
    words = [
        "bench",
        "throughput",
        "--game",
        "phoenix",
        "--trainers",
        "1",
        "--seconds",
        "1",
        "--envs",
        "2",
        "--json",
    ]
    run = subprocess.run([sys.executable, "-m", "leap_rl", *words], capture_output=True, text=True)
    assert run.returncode == 0, run.stderr
    assert run.stdout.count("\n") == 1
    figures = json.loads(run.stdout)
    assert (figures["game"], figures["trainers"], figures["envs"]) == ("phoenix", 1, 2)
    assert 0 < figures["agent_steps_per_s"] < figures["emulator_limit_per_s"]
    ratio = figures["agent_steps_per_s"] / figures["emulator_limit_per_s"]
    assert figures["fraction_of_limit"] == pytest.approx(ratio, rel=1e-3)
    assert tuple(figures["split_us"]) == PARTS
    # All that a run does takes time; and the parts add up to the time of an agent step.
    assert all(figures["split_us"][part] > 0 for part in PARTS if part != "waiting")
    assert sum(figures["split_us"].values()) == pytest.approx(figures["agent_step_us"], abs=0.1)
    assert len(figures["windows"]["agent"]) == len(figures["windows"]["limit"]) == 5
    assert 100 < figures["resident_mb"] < 1500
    assert 0 <= figures["others_cpu_share"] <= 1
    assert set(figures["versions"]) == {"leap_rl", "torch", "ale_py", "numba"}
    assert {"processor", "precision", "unroll", "seconds", "date"} <= set(figures)


def test_overhead_prints_a_table(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bench", "overhead", "--game", "pong", "--seconds", "0.1", "--envs", "2"]) == 0
    captured = capsys.readouterr()
    assert captured.out.startswith("pong, 2 environments")
    rows = {words[0]: words[1:] for line in captured.out.splitlines() if (words := line.split())}
    assert float(rows["energy"][0].replace(",", "")) > 0
    assert float(rows["length"][0].replace(",", "")) > 0
    assert captured.err == "bench: measuring on pong for 0 s\n"


@pytest.mark.parametrize(
    ("words", "parts"),
    [
        ("fast", ["bench fast", "no such measurement", "throughput"]),
        ("throughput", ["game"]),
        ("throughput --game pongg", ["task.games", "'pongg'", "did you mean 'pong'?"]),
        ("throughput --game pong --trainers 0", ["trainers = 0", "at least 1"]),
        ("throughput --game pong --seconds 0", ["seconds = 0.0", "greater than 0"]),
        ("throughput --game pong --envs 0", ["envs = 0", "at least 1"]),
        ("throughput --game pong --unroll 0", ["unroll = 0", "at least 1"]),
        ("throughput --game pong --sconds 1", ["sconds", "no such option", "seconds"]),
        ("throughput --game pong --agent.lr 0", ["agent.lr = 0.0"]),
        ("server --trainers 1 0", ["trainers = 0", "at least 1"]),
        ("server --trainers x", ["trainers = x"]),
        ("startup --repeats 0", ["repeats = 0", "at least 1"]),
        ("startup --game pongg", ["'pongg'", "'pong'"]),
    ],
)
def test_bad_input_gets_one_line(
    words: str, parts: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    line = error_of(capsys, "bench", *words.split())
    assert all(part in line for part in parts), line


def test_numbers_after_an_option_are_a_list() -> None:
    assert join_list(["--trainers", "1", "2", "4", "--seconds", "3"], "--trainers") == [
        *["--trainers", "[1,2,4]", "--seconds", "3"]
    ]
    assert join_list(["--trainers", "2"], "--trainers") == ["--trainers", "2"]
    assert join_list(["--seconds", "3"], "--trainers") == ["--seconds", "3"]


@pytest.mark.parametrize("name", ["throughput", "overhead", "server", "startup"])
def test_each_measurement_explains_itself(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["bench", name, "--help"])
    text = capsys.readouterr().out
    assert f"usage: leap-rl bench {name}" in text
    assert "--json" in text
