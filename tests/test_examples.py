"""The scripts in examples/ run, and begin with the weights that they are given."""

from __future__ import annotations

import os
import runpy
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from leap_rl import pretrained

ROOT = Path(__file__).parents[1]

FILE = pretrained.locate("minatar-leap") / "initialization.safetensors"


def load(script: str) -> dict[str, Any]:
    return runpy.run_path(str(ROOT / "examples" / script))


def assert_from_the_file(encoder: torch.nn.Module) -> None:
    file = load_file(FILE)
    assert encoder.state_dict().keys() == file.keys()
    for name, part in encoder.state_dict().items():
        assert torch.equal(part, file[name]), name


def run(script: str, *words: str, folder: Path) -> str:
    """Run an example; returns what it printed. Ray's files stay in a folder of its own."""
    token = folder / "token"
    token.write_text("0" * 64)
    command = [sys.executable, str(ROOT / "examples" / script), *words]
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "RAY_AUTH_TOKEN_PATH": str(token)}
    environment.pop("RAY_ADDRESS", None)
    done = subprocess.run(command, env=environment, cwd=folder, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.slow
def test_the_first_run_ends_with_a_verdict(tmp_path: Path) -> None:
    first, second, *verdict = run("first_run.py", folder=tmp_path).splitlines()
    assert (first, second) == ("0 32000", "1 64000")
    assert "against random: " in " ".join(verdict)


@pytest.mark.slow
@pytest.mark.parametrize("algorithm", ["ppo", "appo", "impala"])
def test_rllibs_algorithms_train_from_an_initialization(algorithm: str, tmp_path: Path) -> None:
    words = ["--initialization", "pretrained:minatar-leap", "--iterations", "3", "--batch", "256"]
    printed = run("rllib_minatar.py", "--algorithm", algorithm, *words, folder=tmp_path)
    *_, last = printed.splitlines()
    assert last.startswith("3: ")
    assert "mean return" in last


def test_leap_in_ones_own_loop_helps_with_new_tasks(capsys: pytest.CaptureFixture[str]) -> None:
    from_random, from_leap = load("leap_own_loop.py")["main"](meta_steps=20)
    assert from_leap < 0.6 * from_random
    assert capsys.readouterr().out.startswith("mean loss after 50 updates")


def test_an_agent_of_cleanrls_form_starts_from_the_file_and_learns(
    capsys: pytest.CaptureFixture[str],
) -> None:
    script = load("cleanrl_minatar.py")
    assert_from_the_file(script["Agent"]("minatar-leap", 3).network)
    script["main"](["--updates", "20"])
    assert len(capsys.readouterr().out.splitlines()) == 10


def test_stable_baselines3_starts_from_the_file() -> None:
    pytest.importorskip("stable_baselines3", reason="no dependency of leap_rl: pip install it")
    script = load("sb3_minatar.py")
    model = script["make_model"]("minatar-leap", "MinAtar/Breakout-v1", n_steps=8, batch_size=16)
    extractor = model.policy.features_extractor
    assert_from_the_file(extractor.encoder)
    observation = model.env.reset()  # channels first, as this library has them
    shown, _ = model.policy.obs_to_tensor(observation)
    images = torch.from_numpy(np.moveaxis(observation, 1, 3).copy())
    expected = pretrained.load("minatar-leap")(images)
    assert torch.equal(model.policy.extract_features(shown), expected)
    model.learn(64)
    changed = extractor.encoder.state_dict()["conv1.weight"]
    assert not torch.equal(changed, load_file(FILE)["conv1.weight"])
