"""A run is gone on with from its folder alone, and says what is no longer as it was."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from pathlib import Path

import pytest

from leap_rl.cli import main
from leap_rl.runs import header
from leap_rl.runs.config import TrainConfig
from leap_rl.runs.header import differences, versions_here
from leap_rl.storage.run_folder import RunFolder
from tests.commands import BOWLS, Refused, sums


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of two meta-steps."""
    run = tmp_path_factory.mktemp("runs") / "finished"
    assert main(["train", *BOWLS, "--meta.meta_steps", "2", "--run_dir", str(run)]) == 0
    return run


@pytest.fixture
def run(finished: Path, tmp_path: Path) -> Path:
    """A copy of it, at another place."""
    shutil.copytree(finished, tmp_path / "run")
    return tmp_path / "run"


def change_config(run: Path, **changes: object) -> None:
    """Write another config, its checksum included."""
    folder = RunFolder(run)
    folder.write_config({**folder.read_config(), **changes})


def lines_of(capsys: pytest.CaptureFixture[str]) -> list[str]:
    lines = capsys.readouterr().err.splitlines()
    assert all(line.startswith("leap-rl: ") for line in lines)
    return lines


def test_more_meta_steps_extend_a_finished_run(
    run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    straight = tmp_path / "straight"
    assert main(["train", *BOWLS, "--meta.meta_steps", "4", "--run_dir", str(straight)]) == 0
    assert main(["resume", str(run), "--meta.meta_steps", "3"]) == 0
    assert main(["resume", str(run), "--meta.meta_steps", "4"]) == 0
    assert sums(run, 4) == sums(straight, 4)
    assert not lines_of(capsys)
    assert len(RunFolder(run).read_config()["made_by"]) == 1


def test_a_run_records_what_made_it(run: Path) -> None:
    (versions,) = RunFolder(run).read_config()["made_by"]
    assert versions.keys() == {
        *("meta_step", "leap_rl", "python", "torch", "numpy", "ale_py", "gymnasium", "ray"),
        "processor",
    }
    assert None not in versions.values()


def test_other_versions_are_told_in_one_line_and_recorded(
    run: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(header, "version", lambda name: "9.9" if name == "torch" else "2.60.0")
    monkeypatch.setattr(header, "processor_kind", lambda: "another processor")
    (before,) = RunFolder(run).read_config()["made_by"]
    assert main(["resume", str(run), "--meta.meta_steps", "3"]) == 0
    (line,) = lines_of(capsys)
    assert f"the run was made with torch {before['torch']} (now 9.9), " in line
    assert f"processor {before['processor']} (now another processor)" in line
    assert "ray" not in line
    assert "python" not in line
    first, second = RunFolder(run).read_config()["made_by"]
    assert first == before
    assert (second["meta_step"], second["torch"]) == (2, "9.9")
    # From now on these are what made it.
    assert main(["resume", str(run), "--meta.meta_steps", "4"]) == 0
    assert not lines_of(capsys)


def test_the_processors_of_a_cluster_are_not_this_ones() -> None:
    config = TrainConfig()
    here = versions_here(config, meta_step=0)
    elsewhere: Mapping[str, object] = {**here, "processor": None, "meta_step": 5}
    assert differences(here, elsewhere) == differences(elsewhere, here) == []


def without_options(run: Path, *names: str) -> None:
    """Make a run one of an older leap_rl, which did not know some options."""
    folder = RunFolder(run)
    config = header.read_run(folder).config
    options = folder.read_config()
    fingerprint = header.fingerprint(config, options["init_sha256"], without=names)
    for name in names:
        group, _, last = name.partition(".")
        del options[group][last]
    options["fingerprint"] = fingerprint
    options["made_by"][0]["leap_rl"] = "0.0.9"
    folder.write_config(options)
    for number in (1, 2):  # its checkpoints are of that run
        files, state = folder.read_checkpoint(number)
        for key in ("schema", "number", "sha256"):
            del state[key]
        folder.write_checkpoint(number, files, {**state, "fingerprint": fingerprint})


def test_a_run_of_an_older_version_without_an_option_is_resumed(
    run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    without_options(run, "task.on_divergence", "meta.stabilizer")
    for meta_steps in (3, 4):  # writing the config again keeps it that of the old fingerprint
        assert main(["resume", str(run), "--meta.meta_steps", str(meta_steps)]) == 0
        lines = lines_of(capsys)
        assert "the run was made by leap_rl 0.0.9, which lacks options" in lines[0]
        assert "meta.stabilizer = True, task.on_divergence = stop" in lines[0]
        assert len(lines) == (2 if meta_steps == 3 else 1)  # the other version is told once
        assert not any("was changed" in line for line in lines)
        assert "stabilizer" not in RunFolder(run).read_config()["meta"]
    straight = tmp_path / "straight"
    assert main(["train", *BOWLS, "--meta.meta_steps", "4", "--run_dir", str(straight)]) == 0
    assert sums(run, 4) == sums(straight, 4)
    assert main(["fork", str(run), "--at", "3", "--run_dir", str(tmp_path / "fork")]) == 0


def test_an_option_that_this_version_does_not_know_is_named(run: Path, refused: Refused) -> None:
    options = RunFolder(run).read_config()
    newer = [{**options["made_by"][0], "leap_rl": "7.0"}]
    change_config(run, meta={**options["meta"], "momentum": 0.9}, made_by=newer)
    line = refused("resume", run)
    assert "was made by leap_rl 7.0" in line
    assert "meta.momentum: no such option" in line


@pytest.mark.parametrize("command", ["resume", "verify", "watch", "report"])
def test_a_folder_of_an_older_leap_rl_is_refused_before_its_options_are_read(
    command: str, run: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = RunFolder(run)
    options = folder.read_config()
    del options["format"]
    folder.write_config({**options, "meta": "what nobody knows any more"})
    assert main([command, str(run)]) == (1 if command == "verify" else 2)
    said = capsys.readouterr()
    assert (
        f"{folder.config_path}: was made by an older leap_rl, whose folders commit 33eab3b reads "
        "last\n" in said.out + said.err
    )


@pytest.mark.parametrize("head", [{"made_by": 3}, {"made_by": [3]}, {"origin": {"at": 0}}])
def test_a_head_that_cannot_be_is_one_line(
    run: Path, head: dict[str, object], refused: Refused
) -> None:
    change_config(run, **head)
    assert "is not as leap-rl wrote it" in refused("resume", run)


def test_a_defining_option_points_to_fork(run: Path, refused: Refused) -> None:
    line = refused("resume", run, "--meta.p", 1)
    assert "meta.p = 1: says what the run computes and was 2 when it was made" in line
    assert f"fork {run} --at 2 --meta.p ..." in line


def test_a_run_that_holds_another_ones_checkpoint_resumes_from_its_own(
    run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    other = tmp_path / "other"
    argv = [*BOWLS, "--meta.meta_steps", "2", "--seed", "9", "--run_dir", str(other)]
    assert main(["train", *argv]) == 0
    expected = sums(run, 2)
    shutil.rmtree(run / "checkpoints/000002")
    shutil.copytree(other / "checkpoints/000002", run / "checkpoints/000002")
    assert main(["resume", str(run)]) == 0
    assert (
        "000002: belongs to another run than config.yaml; resuming from checkpoint 1"
        in lines_of(capsys)[0]
    )
    assert sums(run, 2) == expected
