"""benchmarks/meta_training.py: its protocols, its cells and its tables."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from benchmarks import meta_training
from benchmarks.harness.cells import CellFile, key_of
from benchmarks.harness.protocol import (
    evaluation_cells,
    read_protocol,
    training_cells,
)
from benchmarks.harness.protocol_runs import run_cell
from leap_rl.core.parsing import parse_options
from leap_rl.runs.config import TrainConfig

ROOT = Path(__file__).parents[2]
PROTOCOLS = sorted((ROOT / "benchmarks/protocols").glob("*.yaml"))
SINGLE_GAME = ROOT / "benchmarks/protocols/single_game.yaml"

TOY = """
question: Does it run?
train:
  meta: {meta_steps: 2, batch_size: 2}
  task: {kind: catch, agent_steps: 800, num_envs: 4, unroll_length: 5}
pools: {catch: [catch]}
variants:
  leap:
  reptile: {meta.method: reptile}
seeds: [0, 1]
"""


FINISHED = {"returns": {"catch": [1.0, 3.0]}, "final_returns": {"catch": [2.0, 6.0]}}


@pytest.fixture
def toy(tmp_path: Path) -> Path:
    path = tmp_path / "toy.yaml"
    path.write_text(TOY)
    return path


def changed(path: Path, *changes: tuple[str, str], more: str = "") -> Path:
    """Replace texts in a protocol."""
    text = path.read_text()
    for before, after in changes:
        assert before in text
        text = text.replace(before, after)
    path.write_text(text + more)
    return path


def reported(protocol: Path, results: dict[str, Any], name: str = "toy") -> str:
    """Report on results; returns a table's text."""
    out = protocol.parent / "out"
    given = meta_training.options().parse_args([str(protocol), "--out", str(out)])
    meta_training.report(given, results)
    return (out / f"{name}.md").read_text()


def cells(protocol: Path) -> list[dict[str, Any]]:
    return training_cells(read_protocol(protocol))


def config_of(cell: dict[str, Any]) -> TrainConfig:
    return parse_options(TrainConfig, cell["options"])


@pytest.mark.parametrize("protocol", PROTOCOLS, ids=lambda path: path.stem)
def test_every_cell_of_a_protocol_is_a_config(protocol: Path) -> None:
    found = cells(protocol)
    assert len({key_of(cell) for cell in found}) == len(found)
    for cell in found[:: max(1, len(found) // 6)]:
        config = config_of(cell)
        assert config.task.resolved_games == tuple(cell["options"]["task.games"])
        assert config.meta.meta_steps == cell["options"]["meta.meta_steps"]


def test_the_single_game_test_is_of_the_defaults() -> None:
    """What the protocol leaves out of `meta` is what everybody gets who says nothing."""
    (leap, reptile), default = cells(SINGLE_GAME)[:2], TrainConfig().meta
    config = config_of(leap)
    for name in ("method", "p", "metric", "task_unit", "loss_scale", "optimizer", "meta_lr"):
        assert getattr(config.meta, name) == getattr(default, name), name
    assert config_of(reptile).meta.method == "reptile"
    assert config_of(reptile).meta.outer == ("sgd", 1.0)


def test_a_protocol_that_lacks_a_part_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "protocol.yaml"
    path.write_text("question: none\nseeds: [0]\n")
    with pytest.raises(ValueError, match=r"protocol\.yaml: lacks train, pools, variants"):
        cells(path)
    with pytest.raises(ValueError, match="cannot be read as a protocol"):
        cells(tmp_path / "nothing.yaml")


def test_finished_cells_can_be_shown(
    toy: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    out = toy.parent / "out"
    monkeypatch.setattr("sys.argv", ["x", str(toy), "--out", str(out), "--report"])
    assert meta_training.main() == 0
    assert capsys.readouterr().out == "0 of 4 cells are done\n"
    CellFile(out / "cells.jsonl").add(cells(toy)[1], FINISHED)
    assert meta_training.main() == 0
    told = capsys.readouterr().out
    assert "1 of 4 cells are done" in told
    assert "| catch | reptile | catch | 1 |" in told
    assert "leap" not in told.partition("| catch")[2]
    (out / "cells.jsonl").write_text("{\n")
    assert meta_training.main() == 2
    assert "line 1: is damaged" in capsys.readouterr().err


@pytest.mark.slow
def test_meta_trained_initializations_are_evaluated(toy: Path) -> None:
    asked = "evaluation: {agents: 2, agent_steps: 600, games: {catch: [catch]}, own_start: true}\n"
    changed(toy, ("800", "400"), ("seeds: [0, 1]", "seeds: [0]"), more=asked)
    (cell,) = evaluation_cells(read_protocol(toy))
    assert [len(runs) for runs in cell["runs"].values()] == [1, 1]
    out = toy.parent / "out"
    argv = [sys.executable, "-m", "benchmarks.meta_training", str(toy), "--out", str(out)]
    argv += ["--processes", "1"]
    told = subprocess.run(argv, check=True, capture_output=True, text=True, cwd=ROOT).stdout
    assert "3 of 3" in told
    verdicts = (out / "toy_evaluation_verdicts.md").read_text().splitlines()
    assert [line.partition(":")[0] for line in verdicts] == ["* catch"] * len(verdicts)
    assert any("leap against random" in line for line in verdicts)
    assert not any("@0" in line for line in verdicts)
    table = (out / "toy_evaluation.md").read_text()
    for compared in ("reptile against random", "leap against leap@0"):
        assert f"| {compared} | catch | 2 |" in table, table
    assert table.startswith("| pool | compared | game | agents |")
    (evaluation,) = (out / "evaluations").iterdir()
    assert (evaluation / "checkpoints/000001/state.json").exists()
    assert reported(toy, CellFile(out / "cells.jsonl").read(), "toy_evaluation") == table


@pytest.mark.slow
def test_agents_learn_a_game_faster_from_what_it_taught(tmp_path: Path) -> None:
    """The single-game test in short: without the metric or the start, Leap falls here."""
    means = {}
    for cell in cells(SINGLE_GAME)[:2]:
        short = {**cell["options"], "meta.meta_steps": 4}
        result = run_cell({**cell, "options": short}, out=tmp_path)
        (means[cell["variant"]],) = result["returns"].values()
    assert means["leap"][0] == means["reptile"][0], "both begin with the same agents"
    assert means["leap"][3] > 1.5 * means["leap"][0]
    assert means["leap"][3] > 0.8 * means["reptile"][3]
