"""Games with a mode or difficulty in a run's files, metrics and tables."""

from __future__ import annotations

from pathlib import Path

import pyarrow.parquet as pq
import pytest

from leap_rl.cli import main
from leap_rl.storage.run_folder import RunFolder
from leap_rl.tracking.jsonl import read_rows
from tests.end_to_end.whole_runs import initializations
from tests.tracking import tensorboard_file

WITH_MODE = "freeway@mode=4,difficulty=1"
OPTIONS = ["--task.games", '["freeway@difficulty=1,mode=4", "pong@mode=1"]']
OPTIONS += ["--task.num_envs", "2", "--task.agent_steps", "40", "--runtime.kind", "local"]
OPTIONS += ["--task.atari.max_frames", "64"]
FINETUNE = ["--meta.method", "pretraining", "--meta.updates_per_round", "3"]
FINETUNE += ["--meta.batch_size", "2"]


def test_agents_and_metrics_have_the_modes_in_their_names(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = tmp_path / "run"
    assert main(["learn", *OPTIONS, "--run_dir", str(run)]) == 0
    agents = sorted(path.name for path in (run / "agents").iterdir())
    assert agents == [f"000_{WITH_MODE}.safetensors", "001_pong@mode=1.safetensors"]
    rows = read_rows(run / "metrics.jsonl")
    assert any(f"return/{WITH_MODE}/mean" in row for row in rows)
    assert {*pq.read_table(run / "curves/000000.parquet")["game"].to_pylist()} == {
        WITH_MODE,
        "pong@mode=1",
    }
    tags = {tag for row in tensorboard_file.rows(run / "tensorboard", "at") for tag in row}
    assert "return/freeway_mode_4_difficulty_1/mean" in tags
    lines = [line for line in capsys.readouterr().out.splitlines() if "agent steps" in line]
    starts = {line.index(" agent steps") for line in lines if ".safetensors" in line}
    assert len(starts) == 1, lines  # one column


def test_agents_of_modes_are_carried_over_to_the_same_bits(tmp_path: Path) -> None:
    straight, stopped = tmp_path / "straight", tmp_path / "stopped"
    train = ["train", *OPTIONS, *FINETUNE, "--tracking.tensorboard", "false"]
    assert main([*train, "--meta.meta_steps", "3", "--run_dir", str(straight)]) == 0
    assert main([*train, "--meta.meta_steps", "1", "--run_dir", str(stopped)]) == 0
    assert (stopped / f"carried_over/000000/{WITH_MODE}.safetensors").exists()
    assert main(["resume", str(stopped), "--meta.meta_steps", "3"]) == 0
    assert initializations(straight) == initializations(stopped)


def test_two_spellings_define_the_same_run(tmp_path: Path) -> None:
    runs = []
    for number, games in enumerate(('["freeway@mode=0"]', '["Freeway"]')):
        options = [*OPTIONS, "--task.games", games, "--task.agent_steps", "10"]
        options += ["--tracking.tensorboard", "false"]
        assert main(["learn", *options, "--run_dir", str(tmp_path / str(number))]) == 0
        runs.append(RunFolder(tmp_path / str(number)))
    assert runs[0].read_config()["fingerprint"] == runs[1].read_config()["fingerprint"]
    assert runs[0].agent(0, "freeway").read_bytes() == runs[1].agent(0, "freeway").read_bytes()
