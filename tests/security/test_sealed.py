"""Each bit of what is read counts: curves, agents, rows, studies; one that flips is told."""

from __future__ import annotations

import json
import random
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from leap_rl.cli import EXIT_FAILED, EXIT_INTERRUPTED, EXIT_USAGE, main
from leap_rl.evaluation.meta_run import closed_slots
from leap_rl.evaluation.results import read_evaluation
from leap_rl.runs.header import read_run
from leap_rl.storage.run_folder import SEALED, RunFolder
from leap_rl.studies.api import Study
from leap_rl.studies.cells import cells_of
from leap_rl.studies.config import StudyConfig
from leap_rl.studies.folder import StudyFolder
from leap_rl.studies.results import read_results
from leap_rl.tracking.jsonl import read_rows
from leap_rl.training.rounds.rows import read_episodes
from leap_rl.training.server.parameter_server import ParameterServer
from tests.commands import CATCH, LOCALLY, META, Refused

STUDY = {"games": ["CartPole-v1"], "held_out": ["leap_rl/CartPole-v1@gravity=20.0"]}

pytestmark = pytest.mark.usefixtures("coarse_plots")


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("trained") / "run"
    assert main(["train", *CATCH, *META, *LOCALLY, "--run_dir", str(out)]) == 0
    return out


@pytest.fixture(scope="module")
def evaluated(trained: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("evaluated") / "eval"
    argv = ["--init", str(trained), "--games", "catch", "--seeds", "2", "--out", str(out)]
    assert main(["evaluate", *argv, *LOCALLY, "--save_agents", "true"]) == 0
    return out


def flip(path: Path, at: int, bit: int = 0) -> None:
    content = bytearray(path.read_bytes())
    content[at] ^= 1 << bit
    path.write_bytes(content)


def silently_different(content: bytes, whole: bytes) -> bool:
    try:
        returns = read_episodes(content)["episode_return"]
    except ValueError:
        return False
    return returns.tobytes() != read_episodes(whole)["episode_return"].tobytes()


def test_a_flipped_return_is_told_by_whatever_reads_it(
    evaluated: Path, tmp_path: Path, refused: Refused, capsys: pytest.CaptureFixture[str]
) -> None:
    copy = Path(shutil.copytree(evaluated, tmp_path / "eval"))
    curves = copy / "curves/000000.parquet"
    whole = curves.read_bytes()
    for at in range(len(whole)):
        flip(curves, at, bit=3)
        if silently_different(curves.read_bytes(), whole):
            break
        curves.write_bytes(whole)
    else:
        pytest.fail("Parquet tells all damage itself")
    says = f"{curves}: is damaged (its SHA-256 is not the one recorded)"
    assert says in refused("report", copy)
    assert says in refused("resume", copy)
    assert main(["verify", str(copy)]) == EXIT_FAILED
    assert says in capsys.readouterr().out


def test_a_flipped_or_lost_agent_is_told(
    evaluated: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    copy = Path(shutil.copytree(evaluated, tmp_path / "eval"))
    first, *_, last = sorted((copy / "agents").iterdir())
    flip(first, first.stat().st_size - 1)
    last.unlink()
    folder = RunFolder(copy)
    with pytest.raises(ValueError, match="is damaged"):
        folder.read_result(first, folder.read_state(1))
    assert main(["verify", str(copy)]) == EXIT_FAILED
    damaged, missing, _ = capsys.readouterr().out.splitlines()
    assert f"{first}: is damaged" in damaged
    assert f"{last}: No such file" in missing


def test_an_older_state_has_no_sums(evaluated: Path, tmp_path: Path) -> None:
    folder = RunFolder(shutil.copytree(evaluated, tmp_path / "eval"))
    files, state = folder.read_checkpoint(1)
    kept = {key: state[key] for key in state.keys() - {"schema", "number", "sha256", SEALED}}
    folder.write_checkpoint(1, files, kept)
    assert main(["verify", str(folder.path)]) == 0
    assert read_evaluation(folder).complete


def test_agents_that_a_dead_server_wrote_are_sealed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    complete = ParameterServer.complete
    done: list[Any] = []

    def die(self: ParameterServer, message: Any) -> object:
        if done:
            raise KeyboardInterrupt
        done.append(message)
        return complete(self, message)

    monkeypatch.setattr(ParameterServer, "complete", die)
    run = tmp_path / "run"
    assert main(["learn", *CATCH, *LOCALLY, "--run_dir", str(run)]) == EXIT_INTERRUPTED
    monkeypatch.undo()
    assert main(["resume", str(run)]) == 0
    sealed = RunFolder(run).read_state(1)[SEALED]
    names = {path.relative_to(run).as_posix() for path in (run / "agents").iterdir()}
    assert len(names) == 4
    assert sealed.keys() == names | {"curves/000000.parquet"}


def test_readers_take_the_rows_of_the_checkpoints(
    trained: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = read_rows(trained / "metrics.jsonl")
    assert len(rows) == 2
    copy = Path(shutil.copytree(trained, tmp_path / "run"))
    path = copy / "metrics.jsonl"
    path.write_text(path.read_text().replace("agent_steps", "agent_stepz"))
    assert RunFolder(copy).rows() == rows
    assert main(["verify", str(copy)]) == EXIT_FAILED
    assert f"{path}: its row of meta-step 0 is not that of" in capsys.readouterr().out


def test_a_study_that_was_changed_is_told(
    tmp_path: Path, refused: Refused, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = StudyFolder.at(tmp_path / "study")
    config = tmp_path / "mine.yaml"
    config.write_text(json.dumps({**STUDY, "runs": 1, "agents": 3}))
    with folder.lock():
        folder.write(StudyConfig.from_yaml(config))
    own = folder.read()
    assert own is not None
    assert StudyConfig.from_yaml(folder.file) == own, "it is a study file itself"
    text = folder.file.read_text()
    folder.file.write_text(text.replace("agents: 3", "agents: 2"))
    with pytest.raises(ValueError, match="changed there, or is damaged"):
        folder.read()
    assert "changed there, or is damaged" in refused("study", folder.path, "--plan")
    assert main(["verify", str(folder.path)]) == EXIT_FAILED
    assert "changed there, or is damaged" in capsys.readouterr().out
    folder.file.write_text("".join(text.splitlines(keepends=True)[:-1]))
    assert folder.read() == own, "an older leap_rl wrote no sum"


# -- random flips ---------------------------------------------------------------------------------


def plain(value: Any) -> Any:
    return value.tolist() if isinstance(value, np.ndarray) else value


def of_run(path: Path) -> object:
    """Everything that a command reads of a finished run."""
    folder = RunFolder(path)
    states = {number: folder.read_checkpoint(number) for number in folder.checkpoints()}
    pointers = folder.latest(), folder.best()
    return read_run(folder).options, states, folder.rows(), closed_slots(folder), pointers


def of_evaluation(path: Path) -> object:
    found = read_evaluation(RunFolder(path))
    curves = [
        {name: plain(getattr(curve, name)) for name in curve.__slots__} for curve in found.curves
    ]
    agents = [file.read_bytes() for file in sorted((path / "agents").iterdir())]
    return of_run(path), curves, agents


def of_study(path: Path) -> object:
    study = Study(path)
    cells = cells_of(study.config, path)
    curves = read_results(study.config, cells).curves
    of_agents = [[plain(getattr(curve, name)) for name in curve.__slots__] for curve in curves]
    every = [of_run(cell.path) for cell in cells]
    return study.config, study.verdict, study.estimates().to_csv(), every, of_agents


def check_flips(
    path: Path, read: Callable[[Path], object], flips: int, seed: int, out: Path
) -> dict[str, int]:
    """Flip random bits of random files, one at a time; count those that are told."""
    draw = random.Random(seed)
    left_out = {".lock", ".server"}
    files = [f for f in sorted(path.rglob("*")) if f.is_file() and f.name not in left_out]
    counts = {"told": 0, "changes nothing that is read": 0}
    copy = Path(shutil.copytree(path, out))
    assert main(["verify", str(copy)]) == 0, "verify finds nothing in a whole folder"
    whole = read(copy)
    for _ in range(flips):
        file = copy / draw.choice(files).relative_to(path)
        before = file.read_bytes()
        if not before:
            continue
        at, bit = draw.randrange(len(before)), draw.randrange(8)
        flip(file, at, bit)
        status = main(["verify", str(copy)])
        if status == 0:
            assert read(copy) == whole, (file, at, bit)
        assert status in (0, EXIT_FAILED, EXIT_USAGE), (file, at, bit)
        counts["told" if status else "changes nothing that is read"] += 1
        file.write_bytes(before)
    return counts


@pytest.mark.parametrize("flips", [8, pytest.param(200, marks=pytest.mark.slow)])
def test_random_flips_of_a_run(flips: int, trained: Path, tmp_path: Path) -> None:
    print(check_flips(trained, of_run, flips, 1, tmp_path / "copy"))


@pytest.mark.parametrize("flips", [8, pytest.param(200, marks=pytest.mark.slow)])
def test_random_flips_of_an_evaluation(flips: int, evaluated: Path, tmp_path: Path) -> None:
    print(check_flips(evaluated, of_evaluation, flips, 2, tmp_path / "copy"))


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_random_flips_of_a_study(tmp_path: Path) -> None:
    out, file = tmp_path / "study", tmp_path / "study.yaml"
    options: dict[str, Any] = {**STUDY, "arms": ["leap"], "runs": 1, "agents": 2}
    options |= {"meta": {"meta_steps": 2}, "task": {"agent_steps": 1600, "num_envs": 4}}
    file.write_text(json.dumps({**options, "tracking": {"tensorboard": False}}))
    assert main(["study", str(file), "--out", str(out)]) == 0
    print(check_flips(out, of_study, 200, 3, tmp_path / "copy"))
