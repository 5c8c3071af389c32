"""The comparison of another library's agents, from agents that are made up."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from benchmarks import sb3
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
    words = ["starts", "--out", str(tmp_path), "--agent_steps", "800", "--seeds", "4"]
    given = sb3.options().parse_args(words)
    for number, cell in enumerate(sb3.cells_of(given)):
        twice = 2.0 if cell["initialization"] == "minatar-leap" else 1.0
        CellFile(tmp_path / "cells.jsonl").add(cell, learned(twice * (10 + number // 2)))
    assert sb3.main(words) == 0
    table = (tmp_path / "sb3_starts.md").read_text()
    assert "| MinAtar/SpaceInvaders-v1 | +100 (" in table
    assert "minatar-leap against random: better in 1 of 1 game" in table
    assert table in capsys.readouterr().out


def test_a_budget_that_does_not_fit_is_a_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert sb3.main(["starts", "--out", str(tmp_path), "--agent_steps", "801"]) == 2
    assert "--agent_steps 801: must be a multiple of 8" in capsys.readouterr().err


def earned(cell: dict[str, Any]) -> dict[str, Any]:
    found = dict(sb3.learn(cell))
    assert len(found["returns"]) == len(found["agent_steps"]) > 10
    assert found["agent_steps"] == sorted(found["agent_steps"])
    # What running episodes have earned is in the rewards, and in no return.
    assert 0 <= sum(found["rewards"]) - sum(found["returns"]) < 16 * 20
    return found


def test_our_agent_earns_what_its_episodes_say() -> None:
    cell = {"agent": "leap_rl", "game": "MinAtar/Breakout-v1", "seed": 0, "agent_steps": 4000}
    assert earned(cell)["interval_ends"][-1] == 4000


@pytest.mark.parametrize(
    "agent",
    [
        {"initialization": "random", "agent_steps": 4096},
        {"agent": "stable-baselines3", "agent_steps": 4000},
    ],
)
def test_the_other_librarys_agent_earns_what_its_episodes_say(agent: dict[str, Any]) -> None:
    pytest.importorskip("stable_baselines3", reason="no dependency of leap_rl: pip install it")
    earned({"game": "MinAtar/Breakout-v1", "seed": 0, **agent})


def test_a_life_that_is_lost_ends_no_episode_and_rewards_are_not_clipped() -> None:
    curve = sb3.Curve(1600)
    after_step = sb3.watch(curve)
    infos = [{"raw_reward": 4.0, "life_lost": True}, {"raw_reward": 7.0, "life_lost": False}]
    for at, dones in ((800, [True, False]), (1600, [True, True])):
        loop = {"self": SimpleNamespace(num_timesteps=at), "infos": infos, "dones": dones}
        assert after_step(loop, None) == (at < 1600)
    result = curve.result()
    assert (sum(result["rewards"]), result["returns"]) == (22.0, [14.0])
    assert result["agent_steps"] == [1600]
