from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

import leap_rl
from leap_rl import Evaluation, Run
from leap_rl.cli import main
from leap_rl.core.parsing import to_cli_args
from leap_rl.runs.child import serve
from tests.end_to_end.whole_runs import stopped_after

pytestmark = pytest.mark.usefixtures("without_plots")

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
        agent_steps=240,
        seeds=2,
        run_dir=tmp_path / "one",
        options=LOCALLY,
        quiet=True,
    )
    assert found.finished
    assert found.verdict.startswith("leap")
    assert Evaluation(tmp_path / "one").verdict == found.verdict
    agents = found.agents()
    assert sorted(agents["initialization"]) == ["leap"] * 2 + ["random"] * 2
    estimates = found.estimates()
    assert {"final_return", "final_return_difference"} <= set(estimates["measure"])
    (final,) = estimates[estimates["measure"] == "final_return"]["estimate"]
    of_leap = agents[agents["initialization"] == "leap"]
    assert final == pytest.approx(of_leap["final return"].mean())
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


@pytest.mark.parametrize(
    ("given", "says"),
    [([], "initializations = .*: name a run, or several"), ({"mine": []}, "'mine' has no run")],
)
def test_nothing_to_evaluate_is_refused_before_anything_is_made(
    given: Any, says: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ValueError, match=says):
        leap_rl.evaluate(given)
    assert not any(tmp_path.iterdir())


def test_what_is_no_evaluation_is_said(run: Run) -> None:
    with pytest.raises(ValueError, match="no evaluation"):
        Evaluation(run.place)


def test_an_encoder_is_that_of_its_run(run: Run, tmp_path: Path) -> None:
    saved = load_file(run.initialization)
    (run.path / "README.md").write_text("Mine.")  # a run it stays
    checkpoint = run.initialization.parent
    for of in (run, run.place, f"{run.place}@2", run.path, run.initialization, checkpoint):
        encoder = leap_rl.load_encoder(of)
        state = encoder.state_dict()
        assert state.keys() == saved.keys()
        assert all(torch.equal(state[name], saved[name]) for name in saved)
    assert main(["export", run.place, "--out", str(tmp_path / "mine")]) == 0
    older = leap_rl.load_encoder(checkpoint.with_name("000001") / run.initialization.name)
    assert not torch.equal(*(one.state_dict()["linear.weight"] for one in (older, encoder)))
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
