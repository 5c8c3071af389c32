"""The metrics of real runs: the same in every sink, and each of them explained."""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
from pathlib import Path

import pyarrow.parquet as pq
import pytest
import wandb
from safetensors.numpy import load_file

from leap_rl.cli import main
from leap_rl.storage.run_folder import RunFolder
from leap_rl.tracking.jsonl import read_rows
from tests.tasks.image_sets import write_idx
from tests.tasks.omniglot_images import write_zip
from tests.tracking import wandb_file

pytestmark = pytest.mark.usefixtures("without_plots")

ROOT = Path(__file__).parents[2]

CATCH = [
    *["--task.kind", "catch", "--task.games", '["catch", "catch_up"]', "--runtime.kind", "local"],
    *["--task.num_envs", "2", "--task.agent_steps", "120", "--tracking.wandb", "offline"],
]
TRAIN = [*CATCH, "--meta.meta_steps", "2", "--meta.batch_size", "3"]


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A run for each kind of row: paths, frames, agents alone, examples, losses, judgements."""
    folder = tmp_path_factory.mktemp("runs")
    atari = ["--task.games", '["bowling"]', "--task.num_envs", "2", "--task.agent_steps", "20"]
    write_zip(folder / "images_background.zip", {"Latin": 20})
    omniglot = ["--task.kind", "omniglot", "--task.games", "all", "--task.data", str(folder)]
    omniglot += ["--task.omniglot.updates", "1", "--runtime.kind", "local"]
    write_idx((sets := folder / "sets") / "digits")
    # Gradient descent with this rate diverges on some of the bowls.
    bowls = ["--task.kind", "quadratic", "--task.on_divergence", "drop_task", "--agent.lr", "1.36"]
    bowls += ["--task.num_envs", "1", "--task.unroll_length", "1", "--task.agent_steps", "1000"]
    commands = {
        "dropped": [
            *["train", *bowls, "--runtime.kind", "local"],
            *["--meta.meta_steps", "1", "--meta.batch_size", "8"],
        ],
        "energy": ["train", *TRAIN],
        "length": ["train", *TRAIN, "--meta.p", "1", "--meta.meta_steps", "1"],
        "frames": [
            *["train", *atari, "--runtime.kind", "local"],
            *["--meta.meta_steps", "1", "--meta.batch_size", "1"],
        ],
        "validated": [
            *["train", *TRAIN, "--meta.meta_steps", "1", "--validation.every_meta_steps", "1"],
            *["--validation.games", '["catch_up"]'],
        ],
        "learn": ["learn", *CATCH],
        "learn_atari": ["learn", *atari, "--runtime.kind", "local"],
        "omniglot": ["train", *omniglot, "--meta.meta_steps", "1", "--meta.batch_size", "1"],
        "learn_omniglot": ["learn", *omniglot],
        "learn_images": [
            *["learn", "--task.kind", "images", "--task.data", str(sets), "--task.games", "digits"],
            *["--task.images.updates", "2", "--runtime.kind", "local"],
        ],
    }
    for name, argv in commands.items():
        assert main([*argv, "--run_dir", str(folder / name)]) == 0
    evaluate = ["evaluate", "--init", str(folder / "energy"), "--games", "catch", "--seeds", "1"]
    local = ["--runtime.kind", "local", "--tracking.wandb", "offline"]
    assert main([*evaluate, *local, "--out", str(folder / "evaluated")]) == 0
    fork = ["fork", str(folder / "energy"), "--at", "1", "--run_dir", str(folder / "fork")]
    assert main([*fork, "--tracking.wandb", "offline"]) == 0
    wandb.teardown()  # wait until its own process has written everything
    return {name: folder / name for name in [*commands, "evaluated", "fork"]}


def test_the_keys_written_are_exactly_those_explained(runs: dict[str, Path]) -> None:
    page = (ROOT / "docs/metrics.md").read_text()
    explained = re.findall(r"^\| `([^`]+)` \|", page, re.MULTILINE)
    assert len(explained) == len(set(explained))
    # A name has one part or two, as MinAtar/Asterix-v1.
    forms = {re.sub("<[a-z]+>", "[^/]+(/[^/]+)?", pattern): pattern for pattern in explained}
    found = set()
    for run in runs.values():
        for row in read_rows(run / "metrics.jsonl"):
            for key in row:
                of_it = [pattern for form, pattern in forms.items() if re.fullmatch(form, key)]
                assert of_it, f"{key} is not in docs/metrics.md"
                found.add(of_it[0])
    assert found == set(explained)


def wandb_of(run: Path) -> Path:
    (file,) = run.glob("wandb/offline-run-*/*.wandb")
    return file


def test_initializations_are_artifacts_and_who_starts_from_one_says_so(
    runs: dict[str, Path],
) -> None:
    ((made, said),) = wandb_file.artifacts(wandb_of(runs["energy"]))
    initialization = runs["energy"] / "checkpoints/000002/initialization.safetensors"
    assert said == {
        "meta_step": 2,
        "sha256": hashlib.sha256(initialization.read_bytes()).hexdigest(),
        "method": "leap",
        "seed": 0,
    }
    assert list(made.aliases) == ["meta-step-2", "latest"]
    assert not made.use_after_commit

    (used, _), *tables = wandb_file.artifacts(wandb_of(runs["evaluated"]))
    assert {table.type for table, _ in tables} == {"run_table"}  # which wandb makes of tables
    assert used.use_after_commit
    assert (used.name, used.digest) == (made.name, made.digest)

    (parents, said), (own, _) = wandb_file.artifacts(wandb_of(runs["fork"]))
    assert (parents.name, said["meta_step"], parents.use_after_commit) == (made.name, 1, True)
    assert own.name != made.name
    assert (own.digest, own.use_after_commit) == (made.digest, False)  # the same bits


def test_an_evaluations_tables_and_report_come_back(runs: dict[str, Path]) -> None:
    file = wandb_of(runs["evaluated"])
    media = wandb_file.media(file)
    tables = {name: json.loads(media[f"evaluation/{name}"]) for name in ("agents", "estimates")}
    assert [row[:4] for row in tables["agents"]["data"]] == [
        ["random", "random", "catch", 0],
        ["energy@2", "energy@2", "catch", 0],
    ]
    column = tables["agents"]["columns"].index("final return")
    finals = [row[column] for row in tables["agents"]["data"]]
    rows = {row[2]: row for row in tables["estimates"]["data"] if row[1] == "catch"}
    difference = rows["final_return_difference"]
    assert difference[0] == "energy@2"
    assert difference[3] == pytest.approx(finals[1] - finals[0])
    assert difference[4:6] == [None, None]  # one agent has no interval
    (first, *_), *_ = json.loads(media["evaluation/verdict"])["data"]
    assert first.startswith("energy@2")
    page = media["evaluation/report"].decode()
    (at,) = runs["evaluated"].glob("report/index.html")
    assert at.stat().st_mtime_ns < file.stat().st_mtime_ns  # it was written once, before logging
    assert page.startswith("<!")
    assert first.split(";")[0] in page
    assert wandb_file.rows(file)[0] == read_rows(runs["evaluated"] / "metrics.jsonl")[0]


def test_a_rows_returns_are_those_of_its_episodes(runs: dict[str, Path]) -> None:
    run = runs["energy"]
    for row in read_rows(run / "metrics.jsonl"):
        table = pq.read_table(run / f"curves/{row['meta_step']:06d}.parquet").to_pandas()
        for game, episodes in table.groupby("game"):
            assert row[f"return/{game}/episodes"] == len(episodes)
            assert row[f"return/{game}/mean"] == pytest.approx(episodes.episode_return.mean())
        assert set(table["length"]) == {60}


def test_learning_leaves_agents_with_heads(runs: dict[str, Path]) -> None:
    agent = load_file(runs["learn"] / "agents/001_catch_up.safetensors")
    assert agent["policy.weight"].shape == (3, 256)
    assert agent["value.weight"].shape == (1, 256)
    assert {name.split(".")[0] for name in agent} == {"encoder", "policy", "value"}
    real = load_file(runs["learn_atari"] / "agents/000_bowling.safetensors")
    assert real["policy.weight"].shape == (6, 256)
    rows = read_rows(runs["learn_atari"] / "metrics.jsonl")
    assert [row["agent_steps"] for row in rows] == [10, 20]
    assert all(row["loss/bowling/entropy"] > 1.0 for row in rows)


def test_resuming_a_finished_run_changes_nothing(runs: dict[str, Path]) -> None:
    for name in ("length", "learn"):
        before = (runs[name] / "metrics.jsonl").read_bytes()
        assert main(["resume", str(runs[name]), "--tracking.wandb", "disabled"]) == 0
        assert (runs[name] / "metrics.jsonl").read_bytes() == before


def test_a_resume_may_go_further_but_not_elsewhere(
    runs: dict[str, Path], capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    run = tmp_path / "run"
    shutil.copytree(runs["length"], run)
    quiet = ["--tracking.wandb", "disabled"]
    for options, part in [
        (["--seed", "5"], "seed = 5: says what the run computes and was 0"),
        (["--meta.p", "2"], "meta.p = 2"),
        (["--task.games", '["catch"]'], "task.games"),
        (["--meta.meta_steps", "0"], "meta.meta_steps = 0"),
    ]:
        assert main(["resume", str(run), *options]) == 2
        assert part in capsys.readouterr().err
    assert main(["resume", str(run), "--meta.meta_steps", "2", *quiet]) == 0
    assert [row["meta_step"] for row in read_rows(run / "metrics.jsonl")] == [0, 1]
    # What was changed stays changed: the run goes on as it was told to, and needs its newest
    # checkpoint only.
    shutil.rmtree(run / "checkpoints/000001")
    assert main(["resume", str(run)]) == 0
    assert "Meta-trained for 2 meta-steps" in capsys.readouterr().out

    config = run / "config.yaml"
    config.write_text(config.read_text().replace("seed: 0", "seed: 3"))
    assert main(["resume", str(run)]) == 2
    assert "was changed since the run was made" in capsys.readouterr().err


def test_an_initialization_counts_by_its_content(runs: dict[str, Path], tmp_path: Path) -> None:
    paths = [tmp_path / "a.safetensors", tmp_path / "b.safetensors", tmp_path / "c.safetensors"]
    for path, version in zip(paths, (0, 0, 2), strict=True):
        source = runs["energy"] / f"checkpoints/{version:06d}/initialization.safetensors"
        shutil.copy(source, path)
    fingerprints = []
    for index, path in enumerate(paths):
        run = tmp_path / str(index)
        argv = ["learn", *CATCH, "--task.agent_steps", "20", "--tracking.wandb", "disabled"]
        assert main([*argv, "--init", str(path), "--run_dir", str(run)]) == 0
        fingerprints.append(RunFolder(run).read_config()["fingerprint"])
    assert fingerprints[0] == fingerprints[1] != fingerprints[2]


def test_two_processes_do_not_share_a_folder(
    runs: dict[str, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    with RunFolder(runs["energy"]).lock():
        assert main(["resume", str(runs["energy"])]) == 2
        error = capsys.readouterr().err
    assert re.search(
        rf"process {os.getpid()} on \S+ \(since .*\) works in this run's folder", error
    )
