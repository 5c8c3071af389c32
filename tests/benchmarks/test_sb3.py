"""The comparison of another library's agents, from agents that are made up."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from benchmarks import sb3


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
