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
    all_cells,
    evaluation_cells,
    read_protocol,
    training_cells,
)
from benchmarks.harness.protocol_runs import cosines_of, run_cell
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


@pytest.mark.slow
def test_a_cell_is_the_run_of_its_options(toy: Path) -> None:
    out = toy.parent
    first, *_ = found = cells(toy)
    assert [(cell["variant"], cell["seed"]) for cell in found] == [
        *[("leap", 0), ("reptile", 0), ("leap", 1), ("reptile", 1)]
    ]
    result = run_cell(first, out=out)
    (returns,) = result["returns"].values()
    assert len(returns) == 2
    assert all(-10 <= value <= 10 for value in returns)  # ten balls an episode
    assert result["final_returns"].keys() == result["returns"].keys()
    assert result["meta"]["step_ratio"][0] > 0
    assert len(list((out / "runs").iterdir())) == 1
    longer = {**first, "options": {**first["options"], "meta.meta_steps": 3}}
    (resumed,) = run_cell(longer, out=out)["returns"].values()
    assert resumed[:2] == returns, "the same run, resumed"
    assert len(resumed) == 3
    assert len(list((out / "runs").iterdir())) == 1


def test_the_table_has_means_over_runs(toy: Path, capsys: pytest.CaptureFixture[str]) -> None:
    results = {
        key_of(cell): {
            "returns": {"catch": [1.0, 3.0 + cell["seed"]]},
            "final_returns": {"catch": [2.0, 6.0 + cell["seed"]]},
        }
        for cell in cells(toy)
    }
    table = reported(toy, results)
    assert table in capsys.readouterr().out
    assert table.startswith("| pool | variant | game | runs |")
    row = next(line for line in table.splitlines() if "reptile" in line)
    assert [part.strip() for part in row.strip("|").split("|")][:9] == [
        *["catch", "reptile", "catch", "2", "1.00", "1.00", "1.00", "3.50", "6.50"]
    ]
    assert "2.50 (" in row  # the rise: 2 and 3
    assert (toy.parent / "out/toy.svg").exists()


def test_a_pool_larger_than_a_meta_step_is_shown_as_the_mean_of_the_sampled_games(
    toy: Path,
) -> None:
    changed(toy, ("[catch]", "[a, b, c]"))
    finished = {
        "returns": {"a": [1.0, None], "b": [2.0, 4.0], "c": [None, 6.0]},
        "final_returns": {"a": [2.0, None], "b": [3.0, 5.0], "c": [None, 8.0]},
    }
    table = reported(toy, {key_of(cell): finished for cell in cells(toy)})
    _, _, *rows = table.strip().splitlines()
    assert [row.split(" | ")[1:8] for row in rows] == [
        [variant, "those of the meta-step", "2", "1.50", "1.50", "1.50", "5.00"]
        for variant in ("leap", "reptile")
    ]
    assert all("| 6.50 | 3.50 (" in row for row in rows)


def test_a_single_meta_step_is_shown_with_its_range_and_without_a_curve(toy: Path) -> None:
    changed(toy, ("meta_steps: 2", "meta_steps: 1"))
    results = {
        key_of(cell): {
            "returns": {"catch": [1.0 + cell["seed"]]},
            "final_returns": {"catch": [4.0 if cell["seed"] else None]},
        }
        for cell in cells(toy)
    }
    _, _, *rows = reported(toy, results).strip().splitlines()
    assert rows[0] == "| catch | leap | catch | 2 | 1.50 | 1.00 to 2.00 | – | – |"
    assert not (toy.parent / "out/toy.svg").exists()


def test_cosines_between_games_and_within_a_game_have_a_column_each(toy: Path) -> None:
    changed(toy, ("[catch]", "[a, 'a@mode=1', b/c]"))
    games = ["a", "a@mode=1", "b/c"]
    rows = [
        {f"loss/{game}/total": 0.0 for game in games}
        | {"cosine/a/a@mode=1": 0.4 + 0.2 * step, "cosine/a/b/c": -0.1, "cosine/a/a": 0.9}
        for step in range(2)
    ]
    pairs = sorted(tuple(sorted(games)) for *games, _ in cosines_of(rows))
    assert pairs == [("a", "a"), ("a", "a@mode=1"), ("a", "b/c")]
    finished = {"returns": {"a": [1.0, 2.0]}, "final_returns": {"a": [1.0, 2.0]}}
    first, *others = cells(toy)
    results = {key_of(cell): finished for cell in others}  # from before cosines were stored
    results[key_of(first)] = {**finished, "cosines": cosines_of(rows)}
    _, _, *shown = reported(toy, results, "toy_cosines").strip().splitlines()
    assert shown == ["| catch | leap | 1 | -0.10 (-0.10 to -0.10) | 0.70 (0.50 to 0.90) |"]


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


def test_an_evaluation_is_of_all_runs_of_a_pool(toy: Path) -> None:
    changed(toy, more="evaluation: {agents: 2}\n")
    (cell,) = found = evaluation_cells(read_protocol(toy))
    assert all_cells(read_protocol(toy))[4:] == found
    assert cell["evaluation"] == {"agents": 2, "agent_steps": 800, "games": ["catch"]}
    assert [run["seed"] for run in cell["runs"]["reptile"]] == [0, 1]
    evaluated = {
        "verdicts": ["leap against random: better in 1 of 1 game."],
        "tables": [
            {"title": "leap against random, game by game", "rows": [{"game": "catch"}]},
            {"title": "Over all games", "rows": [{"initialization": "leap"}]},
        ],
        "rewards": {name: {"catch": [[1.0] * 20, [3.0] * 20]} for name in ("random", "leap")},
    }
    results = {key_of(one): FINISHED for one in cells(toy)} | {key_of(cell): evaluated}
    table = reported(toy, results, "toy_evaluation")
    assert "| catch | leap against random | catch |" in table
    assert "Over all" not in table
    verdicts = (toy.parent / "out/toy_evaluation_verdicts.md").read_text()
    assert verdicts == "* catch: leap against random: better in 1 of 1 game.\n"
    assert (toy.parent / "out/toy_evaluation.svg").exists()


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
