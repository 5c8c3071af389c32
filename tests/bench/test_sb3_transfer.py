"""The comparison of another library's agents, from agents that are made up."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from benchmarks import sb3_transfer
from benchmarks.harness.cells import CellFile


def learned(level: float) -> dict[str, Any]:
    ends = np.arange(1, 101) * 8
    return {
        "interval_ends": ends.tolist(),
        "rewards": np.linspace(0.0, level, 100).tolist(),
        "agent_steps": ends.tolist(),
        "returns": np.linspace(0.0, level, 100).tolist(),
    }


def test_finished_agents_are_compared_in_pairs(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["--out", str(tmp_path), "--agent_steps", "800", "--seeds", "4"]
    given = sb3_transfer.options().parse_args(words)
    for number, cell in enumerate(sb3_transfer.cells_of(given)):
        twice = 2.0 if cell["initialization"] == "minatar-leap" else 1.0
        CellFile(tmp_path / "cells.jsonl").add(cell, learned(twice * (10 + number // 2)))
    assert sb3_transfer.main(words) == 0
    table = (tmp_path / "sb3_transfer.md").read_text()
    assert "| MinAtar/SpaceInvaders-v1 | +100 (" in table
    assert "minatar-leap against random: better in 1 of 1 game" in table
    assert table in capsys.readouterr().out


def test_a_budget_that_does_not_fit_is_a_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert sb3_transfer.main(["--out", str(tmp_path), "--agent_steps", "801"]) == 2
    assert "--agent_steps 801: must be a multiple of 8" in capsys.readouterr().err


def test_an_agent_earns_what_its_episodes_say(tmp_path: Path) -> None:
    pytest.importorskip("stable_baselines3", reason="no dependency of leap_rl: pip install it")
    cell = {
        "initialization": "random",
        "game": "MinAtar/Breakout-v1",
        "seed": 0,
        "agent_steps": 4096,
    }
    found = sb3_transfer.learn(cell)
    assert len(found["returns"]) == len(found["agent_steps"]) > 10
    assert found["agent_steps"] == sorted(found["agent_steps"])
    # What running episodes have earned is in the rewards, and in no return.
    assert 0 <= sum(found["rewards"]) - sum(found["returns"]) < 8 * 20
