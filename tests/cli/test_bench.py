"""How fast it is here, and how long a run takes at that speed."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from leap_rl.bench import config
from leap_rl.bench.agent import PARTS
from leap_rl.bench.plan import agent_steps_per_s
from leap_rl.cli import main
from leap_rl.learners.learner import Learner
from leap_rl.meta.gradient_path import Method, NoMethod
from leap_rl.meta.leap import Leap
from tests.commands import Refused
from tests.tasks.image_sets import write_idx


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
    for roofline in (metrics["roofline"], metrics["roofline_by_cpu_time"]):
        assert 0 < roofline["emulator_us"] < roofline["least_us"]
        assert 0 < roofline["fraction"] < 1
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
        (
            "throughput --game CartPole-v1 --atari.preset machado",
            [": atari: has no effect on games of the kind gymnasium"],
        ),
        (
            "throughput --game ALE/Pong-v5 --gymnasium.remake true",
            [": gymnasium: has no effect on games of the kind atari"],
        ),
        ("throughput --game ALE/Pong-v5@mode=7", [": game: 'pong@mode=7'", "its modes are 0, 1"]),
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
        ("throughput --game pong --agent.algorithm sb3:PPO", ["= sb3:PPO: a2c alone", "plan"]),
        ("throughput --game pong --agent.algorithm classifier", ["= classifier: a2c alone"]),
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


# -- plans ----------------------------------------------------------------------------------------

PAPER = "atari_paper"


def test_the_papers_run_is_planned_from_a_given_speed(capsys: pytest.CaptureFixture[str]) -> None:
    argv = f"plan --config {PAPER} --trainers 12 --agent_steps_per_s 2500 --json".split()
    assert main(argv) == 0
    metrics = json.loads(capsys.readouterr().out)
    # 5 million agent steps take 2,000 s; 16 tasks on 12 trainers two rounds; 100 meta-steps.
    assert metrics["hours"] == pytest.approx(100 * 2 * 2000 / 3600)
    assert metrics["core_hours"] == pytest.approx(12 * metrics["hours"])
    assert metrics["busy_share"] == pytest.approx(2 / 3)
    assert metrics["floor_hours"] == pytest.approx(metrics["hours"] / 2)


def test_the_plan_is_printed_for_people(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["plan", "--agent_steps_per_s", "2500", "--runtime.trainers", "16"]) == 0
    text = capsys.readouterr().out
    assert "100 meta-steps of 16 tasks, 5,000,000 agent steps each, on 16 trainers" in text
    assert "55.6 hours" in text
    assert "as given" in text


@pytest.mark.parametrize(("env_processes", "trainers"), [(1, 16), (3, 8), (64, 1)])
def test_auto_is_what_this_machine_has_cores_for(
    env_processes: int,
    trainers: int,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(config, "cores", lambda: 24)  # more than a batch of 16 has tasks
    words = f"plan --agent_steps_per_s 2500 --runtime.env_processes {env_processes} --json"
    assert main([*words.split(), "--task.num_envs", "64", "--task.agent_steps", "3200000"]) == 0
    assert json.loads(capsys.readouterr().out)["trainers"] == trainers


@pytest.mark.parametrize(
    ("words", "task_rounds"),
    [
        ("--runtime.kind local", 100 * 16),
        # Boxing and seaquest at meta-steps 0, 40 and 80.
        ("--trainers 1 --validation.every_meta_steps 40", 100 * 16 + 3 * 2),
    ],
)
def test_one_trainer_takes_all_tasks_and_validation_tasks(
    words: str, task_rounds: int, capsys: pytest.CaptureFixture[str]
) -> None:
    argv = f"plan --config {PAPER} --agent_steps_per_s 2500 --json {words}".split()
    assert main(argv) == 0
    metrics = json.loads(capsys.readouterr().out)
    assert metrics["trainers"] == 1
    assert metrics["hours"] == pytest.approx(task_rounds * 2000 / 3600)


def test_each_of_a_trainers_cores_counts(capsys: pytest.CaptureFixture[str]) -> None:
    words = "plan --trainers 12 --runtime.env_processes 4 --agent_steps_per_s 2500"
    assert main([*words.split(), "--json"]) == 0
    metrics = json.loads(capsys.readouterr().out)
    assert metrics["cores"] == 48
    assert metrics["core_hours"] == pytest.approx(48 * metrics["hours"])
    busy = metrics["busy_core_hours"] / metrics["core_hours"]
    assert busy == pytest.approx(metrics["busy_share"])
    assert main(words.split()) == 0
    assert "on 12 trainers and 48 cores" in capsys.readouterr().out


def test_a_pool_of_images_is_planned_by_the_sets_in_the_data(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("mnist", "fashion"):
        write_idx(tmp_path / name)
    seen: list[str] = []

    def measure(learner: Learner, method: Method, game: str, seconds: float) -> float:
        seen.append(game)
        return 100.0

    monkeypatch.setattr("leap_rl.bench.plan.agent_steps_per_s", measure)
    words = f"plan --task.kind images --task.data {tmp_path} --task.images.batch_size 10 "
    words += "--task.images.updates 3 --validation.every_meta_steps 50 --validation.games all"
    assert main(words.split()) == 0
    text = capsys.readouterr().out
    assert sorted(seen) == ["fashion", "mnist"]
    assert "tasks, 30 examples each" in text
    assert "one trainer makes, in examples/s: " in text
    assert "2 of the meta-steps have 2 tasks more" in text


def test_games_are_measured_as_the_config_sets_them(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    seen: list[tuple[Learner, Method, str, float]] = []

    def measure(learner: Learner, method: Method, game: str, seconds: float) -> float:
        seen.append((learner, method, game, seconds))
        return 100.0

    monkeypatch.setattr("leap_rl.bench.plan.agent_steps_per_s", measure)
    words = (
        "plan --task.games [pong] --task.atari.preset machado --task.atari.frameskip 2 "
        "--task.num_envs 8 --task.unroll_length 4 --runtime.env_processes 2 --meta.p 1 "
        "--meta.stabilizer false --meta.loss_difference same_batch --agent.encoder nature "
        "--seconds 9 --json"
    )
    assert main(words.split()) == 0
    ((learner, method, game, seconds),) = seen
    assert (game, seconds, learner.env_processes) == ("pong", 9.0, 2)
    assert (learner.task.atari.settings.sticky, learner.task.atari.settings.frameskip) == (0.25, 2)
    assert (learner.task.num_envs, learner.task.unroll_length) == (8, 4)
    assert (learner.agent.encoder, learner.loss_difference) == ("nature", "same_batch")
    assert method == Leap(p=1, stabilizer=False, metric="optimizer", task_unit=True)
    metrics = json.loads(capsys.readouterr().out)
    assert metrics["agent_steps_per_s_per_trainer"] == {"pong": 100.0}


@pytest.mark.slow
def test_the_speed_is_measured_where_it_is_not_given() -> None:
    words = (
        "--task.games [pong] --task.num_envs 2 --seconds 1 --trainers 16 --runtime.env_processes 2 "
        "--task.atari.preset noframeskip --meta.p 1 --meta.loss_difference same_batch --json"
    )
    command = [sys.executable, "-m", "leap_rl", "plan", *words.split()]
    run = subprocess.run(command, capture_output=True, text=True)
    assert run.returncode == 0, run.stderr
    metrics = json.loads(run.stdout)
    (rate,) = metrics["agent_steps_per_s_per_trainer"].values()
    assert metrics["hours"] == pytest.approx(100 * 5e6 / rate / 3600, rel=0.01)
    assert metrics["core_hours"] == pytest.approx(32 * metrics["hours"])
    assert any("an agent was measured alone" in line for line in metrics["assumed"])


@pytest.mark.parametrize(
    ("words", "parts"),
    [
        ("--trainers 0", ["trainers = 0", "at least 1"]),
        ("--agent_steps_per_s 0", ["agent_steps_per_s = 0.0", "greater than 0"]),
        ("--runtime.kind local --trainers 2", ["trainers = 2", "local", "ray"]),
        ("--seconds -1", ["seconds = -1.0"]),
        (
            "--task.kind images --task.data /nonexistent --agent_steps_per_s 100",
            ["task.data = /nonexistent"],
        ),
        ("--task.kind gymnasium --task.games [No-v0]", ["task.games: 'No-v0' cannot be made"]),
        ("--meta.meta_stepps 3", ["meta.meta_stepps", "meta.meta_steps"]),
    ],
)
def test_what_cannot_be_planned_is_one_line(words: str, parts: list[str], refused: Refused) -> None:
    line = refused("plan", *words.split())
    assert all(part in line for part in parts), line


def test_a_task_that_is_one_update_is_measured_by_it() -> None:
    class Task:
        device, done = "cpu", False

        def start(self, shared: torch.Tensor) -> None: ...
        def close(self) -> None: ...

        def advance(self, observe: object) -> Any:
            time.sleep(0.05)
            self.done = True
            return SimpleNamespace(agent_steps=100)

    class Once:
        def random_initialization(self, seed: int) -> torch.Tensor:
            return torch.zeros(1)

        def __call__(self, spec: object) -> Task:
            return Task()

    once: Any = Once()
    assert 200 < agent_steps_per_s(once, NoMethod(), "pong", 0.0) <= 2000
