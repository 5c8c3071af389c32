"""benchmarks/layers.py: agents that start from mixtures of learned and random layers."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from benchmarks import layers
from benchmarks.harness.cells import CellFile, key_of
from leap_rl import load_encoder
from leap_rl.evaluation.diagnosis import OBSERVATIONS
from leap_rl.networks.parameters import Layout, Leaf
from leap_rl.runs.kinds import make_tasks

pytestmark = pytest.mark.usefixtures("forked")

INIT = "pretrained:minatar-leap"
GAME = "MinAtar/Breakout-v1"


def test_a_mixture_has_one_layer_of_the_learned_parameters() -> None:
    leaves = (Leaf("a.weight", (2,), 0), Leaf("a.bias", (1,), 16), Leaf("b.c.weight", (3,), 32))
    layout = Layout(leaves, 48)
    random, learned = torch.zeros(48), torch.ones(48)
    assert layers.layers_of(layout) == ["a", "b.c"]
    for layer, expected in (("a", 3), ("b.c", 3), ("random", 0), ("whole encoder", 6)):
        both = layers.mixed(layout, random, learned, layer=layer)
        assert both.sum() == expected, layer
        assert all(
            (view == (name.startswith(layer) or expected == 6)).all()
            for name, view in layout.named(both).items()
        )
    assert not random.any()


def test_agents_learn_from_mixtures_and_their_encoders_are_measured(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["--init", INIT, "--games", GAME, "--agent_steps", "1600", "--seeds", "1"]
    words += ["--out", str(tmp_path), "--processes", "1"]
    assert layers.main(words) == 0
    table = (tmp_path / "layers.md").read_text()
    assert table in capsys.readouterr().out
    held = table.partition("What encoders hold:")[2].splitlines()
    rows = [line.split(" | ")[1] for line in held if line.startswith(f"| {GAME}")]
    assert rows == ["random", "conv1", "linear", "whole encoder"]
    assert "\n* whole encoder" in table

    cells = layers.cells_of(layers.options().parse_args(words))
    found = CellFile(tmp_path / "cells.jsonl").read()
    tasks = make_tasks(layers.config_of(INIT, [GAME], 1600))
    seen = layers.random_play(tasks, GAME)
    assert seen.shape == (OBSERVATIONS, *tasks.observation_shape)
    with torch.no_grad():
        features = load_encoder(INIT)(torch.from_numpy(seen))
    whole = found[key_of(cells[-1])]
    values = torch.linalg.svdvals(features.double())
    shares = values[values > 0] / values.sum()
    assert whole["rank"][0] == pytest.approx(float(torch.exp(-(shares * shares.log()).sum())))
    assert whole["dead"][0] == (features == 0).all(dim=0).double().mean()
    assert len({tuple(found[key_of(cell)]["rank"]) for cell in cells}) == 4
    assert all(0 < found[key_of(cell)]["moved"] < 1 for cell in cells)
