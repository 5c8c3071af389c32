"""Whole runs with an encoder of the user's: trust, the same bits, evaluation and export."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

import leap_rl
from leap_rl import pretrained
from leap_rl.cli import main
from leap_rl.storage.run_folder import INITIALIZATION
from tests.commands import LOCALLY, QUIET, Refused
from tests.end_to_end.whole_runs import train_with_stops

ROOT = Path(__file__).parents[2]
TRUST = "--trust_imports"
VIT = ["--agent.encoder", "vit_encoder:vit", "--agent.encoder_arguments", '{"width": 16}']
TASK = [
    *["--task.kind", "gymnasium", "--task.games", '["MinAtar/Breakout-v1"]'],
    *["--task.gymnasium.minatar", "palette", "--task.num_envs", "2", "--task.agent_steps", "200"],
]
TRAIN = [*TASK, "--meta.meta_steps", "2", "--meta.batch_size", "2", *VIT]


@pytest.fixture(autouse=True)
def encoder_on_the_path(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(ROOT / "examples")


@pytest.fixture(scope="module")
def calm(tmp_path_factory: pytest.TempPathFactory) -> Path:
    run = tmp_path_factory.mktemp("calm") / "run"
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(ROOT / "examples")
        assert main(["train", *TRAIN, TRUST, *LOCALLY, "--run_dir", str(run)]) == 0
    return run


def parameters(run: Path, number: int) -> dict[str, torch.Tensor]:
    return load_file(run / "checkpoints" / f"{number:06d}" / INITIALIZATION)


def assert_same(one: dict[str, torch.Tensor], other: dict[str, torch.Tensor]) -> None:
    assert one.keys() == other.keys()
    for name, values in one.items():
        assert torch.equal(values, other[name]), name


def test_each_of_its_parameters_is_learned(calm: Path) -> None:
    first, last = parameters(calm, 0), parameters(calm, 2)
    assert "positions" in first
    for name, values in first.items():
        assert not torch.equal(values, last[name]), name


def test_a_stop_in_mid_task_and_a_resume_give_the_same_bits(calm: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    stopped = train_with_stops(run, [*TRAIN, TRUST, *LOCALLY], TRUST)
    assert len(stopped) == 4
    assert_same(parameters(run, 2), parameters(calm, 2))


@pytest.mark.slow
def test_ray_gives_the_same_bits(
    calm: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONPATH", str(ROOT / "examples"))
    run = tmp_path / "run"
    ray = ["--runtime.trainers", "2", *QUIET]
    assert main(["train", *TRAIN, TRUST, *ray, "--run_dir", str(run)]) == 0
    assert_same(parameters(run, 2), parameters(calm, 2))


@pytest.mark.parametrize("command", ["train", "learn", "evaluate", "plan", "bench"])
def test_no_module_is_imported_without_trust(
    command: str, calm: Path, tmp_path: Path, refused: Refused, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "canary_encoder.py").write_text("open('canary', 'w')")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.chdir(tmp_path)
    words = {
        "evaluate": ["--init", str(calm), "--games", "pong"],
        "bench": ["throughput", "--game", "pong", "--seconds", "1"],
    }
    argv = [command, *words.get(command, TASK), "--agent.encoder", "canary_encoder:Mine"]
    line = refused(*argv)
    assert line.startswith("leap-rl: agent.encoder: names the module canary_encoder")
    assert TRUST in line
    if command == "bench":
        line = refused("bench", "throughput", "--game", "canary_games:A-v0")
        assert line.startswith("leap-rl: game: names the module canary_games")
    assert "canary_encoder" not in sys.modules
    assert not (tmp_path / "canary").exists()


def test_a_run_asks_for_trust_and_for_the_same_file_again(
    calm: Path, tmp_path: Path, refused: Refused, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = tmp_path / "run"
    shutil.copytree(calm, run)
    more = ["--meta.meta_steps", "3"]
    assert "names the module vit_encoder" in refused("resume", run, *more)
    source = (ROOT / "examples" / "vit_encoder.py").read_text()
    (tmp_path / "vit_encoder.py").write_text(source + "# changed\n")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "vit_encoder", raising=False)
    line = refused("resume", run, TRUST, *more)
    assert "agent.encoder = vit_encoder:vit: its file is not that of agent.encoder_sha256" in line
    monkeypatch.delitem(sys.modules, "vit_encoder", raising=False)


def test_agents_are_evaluated_and_the_encoder_is_exported(calm: Path, tmp_path: Path) -> None:
    argv = ["--init", str(calm), "--games", "['MinAtar/Breakout-v1']", "--seeds", "2"]
    evaluated = tmp_path / "evaluated"
    assert main(["evaluate", *argv, TRUST, *LOCALLY, "--run_dir", str(evaluated)]) == 0
    out = tmp_path / "mine"
    assert main(["export", str(calm), "--out", str(out)]) == 0
    assert pretrained.read_card(out).encoder_arguments == {"width": 16}
    for load in (leap_rl.load_encoder, pretrained.load):
        with pytest.raises(ValueError, match="vit_encoder:vit, whose module would be imported"):
            load(out)
        encoder = load(out, trust_imports=True)
        assert_same(encoder.state_dict(), parameters(calm, 2))
    with pytest.raises(ValueError, match="pass trust_imports=True"):
        leap_rl.load_encoder(calm)
    encoder = leap_rl.load_encoder(calm, trust_imports=True)
    assert encoder(torch.zeros(3, 10, 10, 3, dtype=torch.uint8)).shape == (3, 16)
