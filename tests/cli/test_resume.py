"""A run is resumed from its folder alone, or a new one starts from a checkpoint: the same bits."""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file

from leap_rl.cli import main
from leap_rl.runs import header
from leap_rl.runs.config import TrainConfig
from leap_rl.runs.header import differences, versions_here
from leap_rl.runs.initializations import find_initialization
from leap_rl.storage.run_folder import INITIALIZATION, RunFolder
from leap_rl.tracking.jsonl import read_rows
from leap_rl.training import run_spec
from leap_rl.training.rounds.meta_training import OUTER_OPTIMIZER
from tests.commands import BOWLS, LOCALLY, Refused, make_older, sums


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
    assert main(["train", *BOWLS, "--meta.meta_steps", "6", "--run_dir", str(straight)]) == 0
    assert main(["resume", str(run), "--meta.meta_steps", "5"]) == 0
    assert main(["resume", str(run), "--meta.meta_steps", "6"]) == 0
    assert sums(run, 6) == sums(straight, 6)
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
    for module in (header, run_spec):  # the trainer has these, too
        monkeypatch.setattr(module, "version", lambda name: "9.9" if name == "torch" else "2.60.0")
    monkeypatch.setattr(header, "processor_kind", lambda: "another processor")
    (before,) = RunFolder(run).read_config()["made_by"]
    assert main(["resume", str(run), "--meta.meta_steps", "5"]) == 0
    (line,) = lines_of(capsys)
    assert f"the run was made with torch {before['torch']} (now 9.9), " in line
    assert f"processor {before['processor']} (now another processor)" in line
    assert "ray" not in line
    assert "python" not in line
    first, second = RunFolder(run).read_config()["made_by"]
    assert first == before
    assert (second["meta_step"], second["torch"]) == (4, "9.9")
    # From now on these are what made it.
    assert main(["resume", str(run), "--meta.meta_steps", "6"]) == 0
    assert not lines_of(capsys)


def test_the_processors_of_a_cluster_are_not_this_ones() -> None:
    config = TrainConfig()
    here = versions_here(config, meta_step=0)
    elsewhere: Mapping[str, object] = {**here, "processor": None, "meta_step": 5}
    assert differences(here, elsewhere) == differences(elsewhere, here) == []


def test_a_run_of_an_older_version_without_an_option_is_resumed(
    run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    make_older(RunFolder(run), "task.on_divergence", "meta.stabilizer")
    for meta_steps in (5, 6):  # writing the config again keeps it that of the old fingerprint
        assert main(["resume", str(run), "--meta.meta_steps", str(meta_steps)]) == 0
        lines = lines_of(capsys)
        assert "the run was made by leap_rl 0.0.9, which lacks options" in lines[0]
        assert "meta.stabilizer = True, task.on_divergence = stop" in lines[0]
        assert len(lines) == (2 if meta_steps == 5 else 1)  # the other version is told once
        assert not any("was changed" in line for line in lines)
        assert "stabilizer" not in RunFolder(run).read_config()["meta"]
    straight = tmp_path / "straight"
    assert main(["train", *BOWLS, "--meta.meta_steps", "6", "--run_dir", str(straight)]) == 0
    assert sums(run, 6) == sums(straight, 6)
    assert main(["fork", str(run), "--at", "5", "--run_dir", str(tmp_path / "fork")]) == 0


def test_a_run_that_lacks_an_option_which_changed_the_bits_is_not_resumed(
    run: Path, refused: Refused, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_older(RunFolder(run), "meta.stabilizer")
    monkeypatch.setattr("leap_rl.runs.resumption.NEW_BITS", frozenset({"meta.stabilizer"}))
    line = refused("resume", run, "--meta.meta_steps", "5")
    assert "meta.stabilizer: " in line
    assert "leap_rl 0.0.9, which computed without it and other bits" in line


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


@pytest.mark.parametrize(
    "head", [{"made_by": 3}, {"made_by": [3]}, {"origin": {"at": 0}}, {"before": {}}]
)
def test_a_head_that_cannot_be_is_one_line(
    run: Path, head: dict[str, object], refused: Refused
) -> None:
    change_config(run, **head)
    assert "is not as leap-rl wrote it" in refused("resume", run)


def test_a_defining_option_points_to_fork(run: Path, tmp_path: Path, refused: Refused) -> None:
    line = refused("resume", run, "--meta.p", 1)
    assert "meta.p = 1: says what the run computes and was 2 when it was made" in line
    assert f"fork {run} --at 3 --meta.p ..." in line
    argv = ["fork", str(run), "--at", "3", "--meta.p", "1", "--run_dir", str(tmp_path / "fork")]
    assert main(argv) == 0


def test_a_librarys_option_that_comes_or_goes_is_another_one(
    tmp_path: Path, refused: Refused, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("stable_baselines3")
    argv = ["train", "--task.kind", "gymnasium", "--task.games", '["CartPole-v1"]']
    argv += ["--task.num_envs", "4", "--task.agent_steps", "80", "--meta.batch_size", "1"]
    argv += ["--meta.meta_steps", "1", "--agent.algorithm", "sb3:A2C", *LOCALLY]
    run = tmp_path / "run"
    given = {"n_steps": 5, "ent_coef": 0.1}
    assert main([*argv, "--agent.sb3", json.dumps(given), "--run_dir", str(run)]) == 0
    more = {**given, "gae_lambda": 0.9}
    for name, options, was in (("ent_coef", {"n_steps": 5}, 0.1), ("gae_lambda", more, "left out")):
        line = refused("resume", run, "--agent.sb3", json.dumps(options))
        now = options.get(name, "left out")
        assert f"agent.sb3.{name} = {now}: says what the run computes and was {was} when" in line
    assert main(["resume", str(run)]) == 0


def test_a_run_that_holds_another_ones_checkpoint_resumes_from_its_own(
    run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    other = tmp_path / "other"
    argv = [*BOWLS, "--meta.meta_steps", "4", "--seed", "9", "--run_dir", str(other)]
    assert main(["train", *argv]) == 0
    expected = sums(run, 4)
    shutil.rmtree(run / "checkpoints/000004")
    shutil.copytree(other / "checkpoints/000004", run / "checkpoints/000004")
    assert main(["resume", str(run)]) == 0
    assert (
        "000004: belongs to another run than config.yaml; resuming from checkpoint 3"
        in lines_of(capsys)[0]
    )
    assert sums(run, 4) == expected


# -- forks ----------------------------------------------------------------------------------------


def fork(finished: Path, at: int, run: Path, *options: str) -> int:
    return main(["fork", str(finished), "--at", str(at), "--run_dir", str(run), *options])


@pytest.mark.parametrize("at", [0, 2])
def test_a_fork_with_nothing_changed_gives_the_same_bits(
    finished: Path, at: int, tmp_path: Path
) -> None:
    assert fork(finished, at, tmp_path / "fork") == 0
    folder = RunFolder(tmp_path / "fork")
    assert folder.checkpoints() == list(range(at, 5))
    for number in range(at, 5):
        assert sums(tmp_path / "fork", number) == sums(finished, number)
    rows = read_rows(folder.path / "metrics.jsonl")
    assert [row["meta_step"] for row in rows] == list(range(at, 4))
    parents = read_rows(finished / "metrics.jsonl")[at:]
    assert [row["agent_steps"] for row in rows] == [row["agent_steps"] for row in parents]


def test_a_fork_says_where_it_comes_from_and_is_a_run_of_its_own(
    finished: Path, tmp_path: Path
) -> None:
    before = {path: path.read_bytes() for path in finished.rglob("*") if path.is_file()}
    assert fork(finished, 3, tmp_path / "fork") == 0
    assert before == {path: path.read_bytes() for path in finished.rglob("*") if path.is_file()}
    config = RunFolder(tmp_path / "fork").read_config()
    start = (finished / "checkpoints/000003" / INITIALIZATION).read_bytes()
    assert config["origin"] == {
        "run": "finished",
        "at": 3,
        "initialization_sha256": hashlib.sha256(start).hexdigest(),
        "optimizer_sha256": sums(finished, 3)[OUTER_OPTIMIZER],
    }
    assert [versions["meta_step"] for versions in config["made_by"]] == [3]
    assert config["fingerprint"] != RunFolder(finished).read_config()["fingerprint"]


def trained_by(init: str) -> tuple[float, set[str]] | None:
    trained = find_initialization(init).trained
    return None if trained is None else (trained.agent_steps, set(trained.games))


def test_what_a_start_was_trained_on_counts_in_what_begins_there(tmp_path: Path) -> None:
    one, fewer = ["--task.games", '["bowl_1"]'], ["--meta.batch_size", "1"]
    parent, forked, begun = (tmp_path / name for name in ("parent", "forked", "begun"))
    train = ["train", *BOWLS, *fewer, "--meta.meta_steps"]
    assert main([*train, "3", "--task.games", '["bowl_0"]', "--run_dir", str(parent)]) == 0
    assert fork(parent, 2, forked, *one) == 0
    start = ["--meta.init", f"{forked}@3", "--task.games", '["bowl_2"]']
    assert main([*train, "1", *start, "--run_dir", str(begun)]) == 0
    assert trained_by(f"{parent}@0") == (0, set())
    assert trained_by(f"{forked}@2") == trained_by(f"{parent}@2") == (80, {"bowl_0"})
    assert trained_by(f"{forked}@3") == (120, {"bowl_0", "bowl_1"})
    assert trained_by(f"{begun}@0") == trained_by(f"{forked}@3")
    assert trained_by(str(begun)) == (160, {"bowl_0", "bowl_1", "bowl_2"})
    change_config(begun, before=None)  # as an older leap_rl left it
    assert trained_by(str(begun)) is None


def test_a_fork_can_be_stopped_resumed_extended_and_forked(finished: Path, tmp_path: Path) -> None:
    assert fork(finished, 1, tmp_path / "fork", "--meta.meta_steps", "2") == 0
    assert main(["resume", str(tmp_path / "fork"), "--meta.meta_steps", "3"]) == 0
    assert sums(tmp_path / "fork", 3) == sums(finished, 3)
    again = tmp_path / "again"
    assert fork(tmp_path / "fork", 2, again, "--meta.meta_steps", "4") == 0
    assert sums(again, 4) == sums(finished, 4)
    rows = read_rows(again / "metrics.jsonl")
    assert [row["meta_step"] for row in rows] == [2, 3]


@pytest.mark.parametrize(
    "options",
    [
        ["--meta.meta_lr", "0.01"],
        ["--seed", "1"],
        ["--task.games", '["bowl_0", "bowl_1"]'],
        ["--task.agent_steps", "80"],
        ["--meta.batch_size", "2"],
        ["--meta.p", "1"],
        ["--agent.lr", "0.02"],
    ],
)
def test_what_a_run_computes_may_change(finished: Path, options: list[str], tmp_path: Path) -> None:
    run = tmp_path / "fork"
    assert fork(finished, 3, run, *options) == 0
    assert sums(run, 3) == sums(finished, 3)
    assert sums(run, 4) != sums(finished, 4)
    assert main(["resume", str(run)]) == 0  # its fingerprint is that of its options


def test_another_optimizer_starts_from_scratch(
    finished: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = tmp_path / "sgd"
    options = ["--meta.optimizer", "sgd", "--meta.meta_lr", "1.0", "--meta.meta_steps", "5"]
    assert fork(finished, 4, run, *options) == 0
    assert "the outer optimizer starts from scratch" in capsys.readouterr().err
    assert sums(run, 4)[INITIALIZATION] == sums(finished, 4)[INITIALIZATION]
    assert load_file(run / "checkpoints/000005" / OUTER_OPTIMIZER) == {}
    assert fork(run, 4, tmp_path / "adam", "--meta.optimizer", "adam") == 0
    state = load_file(tmp_path / "adam/checkpoints/000005" / OUTER_OPTIMIZER)
    np.testing.assert_array_equal(state["step"], 1.0)


@pytest.mark.parametrize(
    ("argv", "parts"),
    [
        ([], ["--at S: is missing"]),
        (["--at"], ["--at : must be the number of a checkpoint"]),
        (["--at", "last"], ["--at last: must be the number of a checkpoint"]),
        (["--at=-1"], ["--at -1: must be"]),
        (["--at", "7"], ["--at 7", "has no such checkpoint; it has 0 to 4"]),
        (["--at", "4"], ["meta.meta_steps = 4", "--meta.meta_steps 5"]),
        (["--at", "2", "--meta.init", "x.safetensors"], ["meta.init = x.safetensors", "--at"]),
        (["--at", "2", "--meta.pp", "1"], ["meta.pp", "no such option", "meta.p"]),
        (
            ["--at", "2", "--task.kind", "catch", "--task.agent_steps", "20"],
            ["agent.algorithm = gradient_descent: learns bowls", "take agent.algorithm = a2c"],
        ),
        (
            ["--at", "2", "--task.kind", "catch", "--agent.algorithm", "auto"],
            ["checkpoint 2 of", "does not fit these options", "were they made for another"],
        ),
    ],
)
def test_what_cannot_be_is_one_line(
    finished: Path, argv: list[str], parts: list[str], tmp_path: Path, refused: Refused
) -> None:
    line = refused("fork", finished, *argv, "--run_dir", tmp_path / "run")
    assert all(part in line for part in parts), line
    assert not (tmp_path / "run").exists()


def test_a_folder_that_holds_a_run_is_not_written_to(finished: Path, refused: Refused) -> None:
    assert "holds a run already" in refused("fork", finished, "--at", 1, "--run_dir", finished)


def test_a_damaged_checkpoint_is_not_forked(
    finished: Path, tmp_path: Path, refused: Refused
) -> None:
    shutil.copytree(finished, tmp_path / "damaged")
    (tmp_path / "damaged/checkpoints/000002" / INITIALIZATION).write_bytes(b"")
    line = refused("fork", tmp_path / "damaged", "--at", 2)
    assert "000002/initialization.safetensors: is damaged" in line


def test_agents_that_learn_alone_have_nothing_to_fork(tmp_path: Path, refused: Refused) -> None:
    games = ["--task.kind", "quadratic", "--task.games", '["bowl_0"]', "--task.num_envs", "2"]
    small = [*games, "--task.unroll_length", "1", "--task.agent_steps", "200", *LOCALLY]
    assert main(["learn", *small, "--run_dir", str(tmp_path / "run")]) == 0
    line = refused("fork", tmp_path / "run", "--at", 0)
    assert "is a run of leap-rl learn, which has nothing to fork" in line


def test_its_help_teaches(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["fork", "--help"]) == 0
    text = capsys.readouterr().out
    assert "usage: leap-rl fork RUN --at S" in text
    assert main(["fork"]) == 2


def test_without_a_folder_it_gets_one(
    finished: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["fork", str(finished), "--at=3"]) == 0
    (run,) = (tmp_path / "runs").glob("fork-*")
    assert sums(run, 4) == sums(finished, 4)
