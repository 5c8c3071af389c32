"""Maps an evaluation's slots to agents; serializes their rewards."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from safetensors.numpy import save

from leap_rl.training.messages import CurvePoint

RANDOM = "random"
"""Names the baseline: agents whose encoders start at random."""
REWARDS = "rewards.safetensors"
"""In the checkpoint of a complete evaluation: the rewards of each agent in each interval."""


MOST_AGENTS = 2**20
"""Of an evaluation that is read."""


class Agent(NamedTuple):
    """The agent of a slot of an evaluation."""

    initialization: str
    """A group of runs of one method, or `RANDOM`."""
    run: int
    """Which of the group's runs made the encoder that it starts with, from 0."""
    game: str
    seed: int
    """Counts from 0. Agents of the same game and seed are pairs, whatever their run: they share
    everything but the encoder's start."""


def agents_of(described: Mapping[str, Any]) -> list[Agent]:
    """Return an evaluation's agents in slot order, from its first checkpoint's description.

    Raises:
        KeyError: An older leap_rl wrote the description.
        ValueError: It is none.
    """
    _check(described)
    seeds: int = described["seeds"]
    random: int = described.get("random_agents", seeds)
    return [
        Agent(name, run, game, seed)
        for seed in range(max(seeds, random))
        for game in described["games"]
        for name in described["initializations"]
        if seed < (random if name == RANDOM else seeds)
        for run in range(len(described["runs"].get(name, [name])))
    ]


def _check(described: Mapping[str, Any]) -> None:
    """Check what is read of a description."""
    if not isinstance(described, dict):
        raise ValueError("describes no evaluation")
    names, games = described["initializations"], described["games"]
    runs, seeds, budget = described["runs"], described["seeds"], described["agent_steps"]
    own_starts, mixes = described["own_starts"], described.get("mixes", {})
    random = described.get("random_agents", seeds)
    whole = (
        _are_names(names)
        and _are_names(games)
        and isinstance(runs, dict)
        and all(_are_names(of) for of in runs.values())
        and all(type(count) is int and 0 < count < 2**63 for count in (seeds, random, budget))
        and isinstance(own_starts, dict)
        and _are_names([*own_starts.values()])
        and isinstance(mixes, dict)
        and all(type(mix) in (int, float) for mix in mixes.values())
        and isinstance(described.get("training", {}), dict)
        and all(map(_is_training, described.get("training", {}).values()))
    )
    if not whole or len(set(names)) < len(names) or len(set(games)) < len(games):
        raise ValueError("describes no evaluation")
    agents = max(seeds, random) * len(games) * sum(len(runs.get(name, [name])) for name in names)
    if agents > MOST_AGENTS:
        raise ValueError(f"describes {agents:,} agents")


def _are_names(value: object) -> bool:
    return isinstance(value, list) and all(isinstance(one, str) for one in value)


def _is_training(value: object) -> bool:
    return (
        isinstance(value, dict)
        and type(value.get("agent_steps")) in (int, float)
        and _are_names(value.get("games"))
    )


def rewards_file(curves: Mapping[int, Sequence[CurvePoint]]) -> bytes:
    """Return the rewards of agents, by slot, as the file `REWARDS`.

    It has `slots` [N], and of each slot R intervals: `interval_ends` and `rewards`, [N, R]. Of
    agents whose updates differ in length, some have fewer: their last ones are empty.
    """
    intervals = [reward_intervals(curve) for curve in curves.values()]
    most = max(len(ends) for ends, _ in intervals)
    ends = [np.pad(ends, (0, most - len(ends)), mode="edge") for ends, _ in intervals]
    rewards = [np.pad(rewards, (0, most - len(rewards))) for _, rewards in intervals]
    slots = np.array(list(curves), dtype=np.int64)
    arrays = {"slots": slots, "interval_ends": np.stack(ends), "rewards": np.stack(rewards)}
    return bytes(save(arrays))


def reward_intervals(
    curve: Sequence[CurvePoint],
) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """Return the ends of a curve's intervals in agent steps, and the rewards in each, [R]."""
    ends = np.array([point.agent_steps for point in curve], dtype=np.int64)
    return ends, np.array([point.rewards for point in curve], dtype=np.float64)
