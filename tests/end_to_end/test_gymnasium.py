"""Whole runs over Gymnasium environments: both runtimes, a stop in mid-task, and trust."""

from __future__ import annotations

import sys
from dataclasses import asdict
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from leap_rl.cli import main
from leap_rl.core.choices import Domain
from leap_rl.learners.defaults import DEFAULTS
from leap_rl.storage.run_folder import RunFolder
from leap_rl.tracking.jsonl import read_rows
from tests.end_to_end.whole_runs import initializations, one_line, train_with_stops
from tests.envs.own_games import MODULE, WALK

ROOT = Path(__file__).parents[2]
QUIET = ["--tracking.tensorboard", "false", "--tracking.console", "quiet"]
LOCAL = ["--runtime.kind", "local", *QUIET]
SMALL = ["--task.num_envs", "2", "--task.agent_steps", "200", "--meta.meta_steps", "2"]
OWN = [
    *["--task.kind", "gymnasium", "--task.gymnasium.pad", "zeros"],
    *["--task.games", f"['{WALK}@terminates=7', 'Acrobot-v1', 'leap_rl/CartPole-v1@length=1.0']"],
    *["--meta.batch_size", "3", *SMALL],
]
TRUST = "--trust_imports"


@pytest.fixture(scope="module")
def calm(tmp_path_factory: pytest.TempPathFactory) -> Path:
    run = tmp_path_factory.mktemp("calm") / "run"
    assert main(["train", *OWN, TRUST, *LOCAL, "--run_dir", str(run)]) == 0
    return run


def test_every_meta_step_moves_the_shared_encoder(calm: Path) -> None:
    assert len(set(initializations(calm))) == 3
    config = RunFolder(calm).read_config()
    assert config["agent"]["encoder"] == "mlp"
    assert config["task"]["gymnasium"]["observation_shape"] == [6]
    assert "atari" not in config["task"]
    assert config["agent"]["reward_clip"] == float("inf")


def test_defaults_are_written_down_and_taken_over(calm: Path, tmp_path: Path) -> None:
    settings = asdict(DEFAULTS["vectors"]).items()
    assert RunFolder(calm).read_config()["agent"].items() >= settings
    forked = ["fork", str(calm), "--at", "1", "--agent.lr", "auto", "--agent.gamma", "0.5", TRUST]
    assert main([*forked, *LOCAL, "--run_dir", str(tmp_path / "fork")]) == 0
    agent = RunFolder(tmp_path / "fork").read_config()["agent"]
    assert agent.items() >= (dict(settings) | {"gamma": 0.5}).items()
    argv = ["evaluate", "--init", str(tmp_path / "fork"), "--games", '["CartPole-v1"]', *LOCAL]
    argv += ["--seeds", "1", "--agent_steps", "100", "--run_dir", str(tmp_path / "evaluation")]
    assert main(argv) == 0
    assert RunFolder(tmp_path / "evaluation").read_config()["agent"] == agent


def test_a_stop_in_mid_task_and_a_resume_give_the_same_bits(
    calm: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = tmp_path / "run"
    stopped = train_with_stops(run, [*OWN, TRUST, *LOCAL], TRUST)
    assert stopped == {(step, slot) for step in range(2) for slot in range(3)}
    assert initializations(run) == initializations(calm)
    rows, undisturbed = (read_rows(folder / "metrics.jsonl") for folder in (run, calm))
    for one, other in zip(rows, undisturbed, strict=True):
        timed = [key for key in one if key.startswith(("time/", "throughput/"))]
        assert {key: one[key] for key in one.keys() - timed} == {
            key: other[key] for key in other.keys() - timed
        }
    assert any(key.startswith("return/leap_rl/CartPole-v1@length=1.0/") for key in rows[0])
    capsys.readouterr()


@pytest.mark.slow
@pytest.mark.parametrize("processes", [1, 2])
def test_ray_gives_the_same_bits(calm: Path, processes: int, tmp_path: Path) -> None:
    run = tmp_path / "run"
    ray = ["--runtime.trainers", "2", "--runtime.env_processes", str(processes)]
    assert main(["train", *OWN, TRUST, *ray, *QUIET, "--run_dir", str(run)]) == 0
    assert initializations(run) == initializations(calm)


def test_agents_learn_games_whose_names_have_a_slash(tmp_path: Path) -> None:
    run = tmp_path / "run"
    games = ["--task.kind", "gymnasium", "--task.games", '["MinAtar/Breakout-v1"]']
    argv = [*games, *SMALL[:4], "--agent.encoder", "minatar", *LOCAL]
    assert main(["learn", *argv, "--run_dir", str(run)]) == 0
    assert (run / "agents/000_MinAtar+Breakout-v1.safetensors").exists()
    assert any("return/MinAtar/Breakout-v1/mean" in row for row in read_rows(run / "metrics.jsonl"))


@pytest.mark.parametrize(
    ("package", "game", "domain"),
    [
        ("Box2D", "LunarLander-v3@gravity=-9.0", "vectors"),
        ("minigrid", "minigrid_layouts:Layout-v0@name=Empty-5x5", "images"),
    ],
)
def test_environments_of_other_packages_are_learned(
    package: str, game: str, domain: Domain, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip(package, reason="of the extra families: pip install 'leap-rl[families]'")
    monkeypatch.syspath_prepend(ROOT / "examples")
    games = ["--task.kind", "gymnasium", "--task.games", f"['{game}']", TRUST]
    run = RunFolder(tmp_path / "run")
    assert main(["learn", *games, *SMALL[:4], *LOCAL, "--run_dir", str(run.path)]) == 0
    assert run.read_config()["agent"].items() >= asdict(DEFAULTS[domain]).items()
    start = load_file(run.path / "checkpoints/000000/initialization.safetensors")
    end = load_file(next(run.path.glob("agents/*.safetensors")))
    for name, part in start.items():
        assert not torch.equal(end[f"encoder.{name}"], part), name


# -- modules that a config names --------------------------------------------------------------


def test_no_module_is_imported_that_is_not_trusted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "canary_games.py").write_text("open('canary', 'w')")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.chdir(tmp_path)
    games = ["--task.kind", "gymnasium", "--task.games", '["canary_games:A-v0"]']
    for command in ("train", "learn", "plan"):
        line = one_line([command, *games], capsys)
        assert "canary_games" in line
        assert "--trust_imports" in line
    (tmp_path / "trusting.yaml").write_text("trust_imports: true\n")
    line = one_line(["train", "--config", "trusting.yaml", *games], capsys)
    assert "trust_imports: no such option" in line
    assert "canary_games" not in sys.modules
    assert not (tmp_path / "canary").exists()
    line = one_line(["learn", *games, TRUST, *LOCAL], capsys)
    assert "cannot be made (NameNotFound" in line
    assert (tmp_path / "canary").exists()


def test_a_run_of_somebody_elses_is_not_resumed_unless_it_is_trusted(
    calm: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for argv in (["resume", str(calm)], ["fork", str(calm), "--at", "1"]):
        assert MODULE in one_line(argv, capsys)
