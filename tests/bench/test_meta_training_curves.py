"""benchmarks/meta_training_curves.py: its protocols, what a cell computes, what it shows."""

from __future__ import annotations

import argparse
import runpy
from pathlib import Path
from typing import Any

import pytest

from leap_rl.cli.parser import config_parser, parse
from leap_rl.config import TrainConfig
from leap_rl.evaluation.cells import key_of

ROOT = Path(__file__).parents[2]
SCRIPT = runpy.run_path(str(ROOT / "benchmarks/meta_training_curves.py"))
PROTOCOLS = sorted((ROOT / "benchmarks/protocols").glob("*.yaml"))
SINGLE_GAME = ROOT / "benchmarks/protocols/single_game.yaml"

TOY = """
question: Does it run?
train:
  meta: {meta_steps: 2, batch_size: 2}
  task: {kind: catch, agent_steps: 2000, num_envs: 4, unroll_length: 5}
pools: {catch: [catch]}
variants:
  leap:
  reptile: {meta.method: reptile}
seeds: [0, 1]
"""


def given(protocol: Path, out: Path) -> argparse.Namespace:
    return SCRIPT["options"]().parse_args([str(protocol), "--out", str(out)])


def cells(protocol: Path) -> list[dict[str, Any]]:
    return SCRIPT["cells_of"](given(protocol, Path("out")))


def config_of(cell: dict[str, Any]) -> TrainConfig:
    words = SCRIPT["words"](cell["options"])
    return parse(config_parser(TrainConfig, program="test"), TrainConfig, words)


@pytest.mark.parametrize("protocol", PROTOCOLS, ids=lambda path: path.stem)
def test_every_cell_of_a_protocol_is_a_config(protocol: Path) -> None:
    found = cells(protocol)
    assert len({key_of(cell) for cell in found}) == len(found)
    for cell in found[:: max(1, len(found) // 40)]:
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


def test_a_cell_is_the_run_that_its_options_name(tmp_path: Path) -> None:
    path = tmp_path / "toy.yaml"
    path.write_text(TOY)
    first, *_ = found = cells(path)
    assert [(cell["variant"], cell["seed"]) for cell in found] == [
        *[("leap", 0), ("reptile", 0), ("leap", 1), ("reptile", 1)]
    ]
    result = SCRIPT["run_cell"](first, out=tmp_path)
    (returns,) = result["returns"].values()
    assert len(returns) == 2
    assert all(-10 <= value <= 10 for value in returns)  # ten balls an episode
    assert result["final_returns"].keys() == result["returns"].keys()
    assert result["meta"]["step_ratio"][0] > 0
    assert len(list((tmp_path / "runs").iterdir())) == 1
    longer = {**first, "options": {**first["options"], "meta.meta_steps": 3}}
    (resumed,) = SCRIPT["run_cell"](longer, out=tmp_path)["returns"].values()
    assert resumed[:2] == returns, "the same run, resumed"
    assert len(resumed) == 3
    assert len(list((tmp_path / "runs").iterdir())) == 1


def test_the_table_is_of_means_over_seeds(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "toy.yaml"
    path.write_text(TOY)
    results = {
        key_of(cell): {
            "returns": {"catch": [1.0, 3.0 + cell["seed"]]},
            "final_returns": {"catch": [2.0, 6.0 + cell["seed"]]},
        }
        for cell in cells(path)
    }
    SCRIPT["report"](given(path, tmp_path / "out"), results)
    table = (tmp_path / "out/toy.md").read_text()
    assert table in capsys.readouterr().out
    row = next(line for line in table.splitlines() if "reptile" in line)
    assert [part.strip() for part in row.strip("|").split("|")][:7] == [
        *["catch", "reptile", "catch", "2", "1.00", "3.50", "6.50"]
    ]
    assert "2.50 (" in row  # the rise: 2 and 3
    assert (tmp_path / "out/toy.svg").exists()


@pytest.mark.slow
def test_agents_learn_a_game_faster_from_what_it_taught(tmp_path: Path) -> None:
    """The single-game test in short: without the metric or the start, Leap falls here."""
    means = {}
    for cell in cells(SINGLE_GAME)[:2]:
        short = {**cell["options"], "meta.meta_steps": 4}
        result = SCRIPT["run_cell"]({**cell, "options": short}, out=tmp_path)
        (means[cell["variant"]],) = result["returns"].values()
    assert means["leap"][0] == means["reptile"][0], "both begin with the same agents"
    assert means["leap"][3] > 1.5 * means["leap"][0]
    assert means["leap"][3] > 0.8 * means["reptile"][3]
