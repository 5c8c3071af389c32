"""The scripts in examples/ run, and begin with the weights that they are given."""

from __future__ import annotations

import json
import os
import runpy
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from leap_rl import pretrained
from leap_rl.runs.child import serve
from leap_rl.runs.process import Request

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
    assert "from random starts" in " ".join(verdict)


@pytest.mark.slow
def test_the_first_study_ends_with_an_answer_and_a_table(tmp_path: Path) -> None:
    (tmp_path / "studies").symlink_to(ROOT / "studies")
    printed = run("first_study.py", folder=tmp_path)
    assert "agent steps a task" in printed
    assert "agent_steps_saved" in printed


TINY = {
    "AGENT_STEPS": 320,
    "SEEDS": 2,
    "WATCHED_AGENT_STEPS": 160,
    "OPTIONS": {"runtime.kind": "local"},
}


def in_this_process(request: Request, on_row: Any = lambda row: None) -> None:
    assert serve(request, on_row) == 0


@pytest.mark.usefixtures("without_plots")
@pytest.mark.parametrize(
    "parameters",
    [TINY, pytest.param({}, marks=[pytest.mark.slow, pytest.mark.timeout(1800)])],
    ids=["tiny", "as it is"],
)
def test_the_notebook_runs_from_its_first_cell_to_its_last(
    parameters: dict[str, Any],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """As by papermill: `parameters` take the place of what the cell of that tag sets."""
    shown: list[bytes] = []
    display = ModuleType("IPython.display")
    display.Video = lambda path, embed: Path(path).read_bytes()  # type: ignore[attr-defined]
    display.display = shown.append  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "IPython.display", display)
    monkeypatch.setenv("MPLBACKEND", "Agg")
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    monkeypatch.chdir(tmp_path)
    if parameters:  # tests/api has the processes that evaluations run in
        monkeypatch.setattr("leap_rl.runs.api.runs.call", in_this_process)
        monkeypatch.setattr("leap_rl.runs.api.evaluations.call", in_this_process)
        monkeypatch.setattr("leap_rl.runs.clips.LONGEST_S", 1)
    notebook = json.loads((ROOT / "examples/first_hour.ipynb").read_text())
    cells = [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]
    assert [cell["metadata"].get("tags") for cell in cells].index(["parameters"]) == 0
    names: dict[str, Any] = {}
    for cell in cells:
        assert (cell["outputs"], cell["execution_count"]) == ([], None)  # committed without them
        exec("".join(cell["source"]), names)
        if cell is cells[0]:
            assert parameters.keys() <= names.keys()
            names.update(parameters)
    assert "minatar-leap" in capsys.readouterr().out
    assert len(names["found"].agents()) == 2 * names["SEEDS"]
    (axes,) = names["plt"].gcf().axes
    assert [line.get_label() for line in axes.get_lines()] == ["random", "minatar-leap"]
    assert len(shown) == 2
    assert all(clip[4:8] == b"ftyp" for clip in shown)  # of an MP4
    names["plt"].close("all")


@pytest.mark.slow
@pytest.mark.parametrize("algorithm", ["ppo", "appo", "impala"])
def test_rllibs_algorithms_train_from_an_initialization(algorithm: str, tmp_path: Path) -> None:
    words = ["--initialization", "pretrained:minatar-leap", "--iterations", "3", "--batch", "256"]
    printed = run("rllib_minatar.py", "--algorithm", algorithm, *words, folder=tmp_path)
    *_, last = printed.splitlines()
    assert last.startswith("3: ")
    assert "mean return" in last


def test_leap_in_ones_own_loop_helps_with_new_tasks(capsys: pytest.CaptureFixture[str]) -> None:
    from_random, from_leap = load("leap_own_loop.py")["main"](meta_steps=10)
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
