"""The learning curves of an evaluation's agents, read from its folder."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError
from safetensors.numpy import load

from leap_rl.core.regular_file import read_regular
from leap_rl.storage.checksummed_file import ChecksumError, decode_arrays
from leap_rl.storage.dataclass_from_json import dataclass_from_json
from leap_rl.storage.locked_folder import RunFolderError
from leap_rl.storage.run_folder import RunFolder
from leap_rl.training.messages import CurvePoint
from leap_rl.training.rounds.evaluation_slots import RANDOM, REWARDS, agents_of, reward_intervals
from leap_rl.training.rounds.rows import read_episodes


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class LearningCurve:
    """One agent's rewards in R intervals, and its E episodes in the order of their ends."""

    initialization: str
    run: int = 0
    game: str
    seed: int
    """These four as in `leap_rl.training.rounds.evaluation_slots.Agent`."""
    restarted: bool = False
    """Whether its task diverged and was restarted with another seed."""
    interval_ends: NDArray[np.int64]
    """Agent steps of the task, over its environments, at the end of each interval, [R]."""
    rewards: NDArray[np.float64]
    """Raw rewards earned in each interval, in episodes that never ended too, [R]."""
    agent_steps: NDArray[np.int64]
    """The same when each episode ended, [E], ascending."""
    returns: NDArray[np.float64]
    """Raw returns, [E]."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Training:
    """What made the initializations of a method's runs."""

    agent_steps: float
    """Of one run, all its agents together; the mean over runs."""
    games: tuple[str, ...]
    """That its agents learned; none of version 0, which nothing was learned for."""


@dataclass(frozen=True, kw_only=True, slots=True)
class EvaluationResults:
    """The finished agents of an evaluation."""

    initializations: tuple[str, ...]
    """Names, the baseline first where there is one; several runs may be one initialization."""
    runs: Mapping[str, Sequence[str]]
    """Names of each initialization's runs. The baseline counts as one."""
    own_starts: Mapping[str, str]
    """By initialization, the name of its runs' own random starts, which join the baseline."""
    games: tuple[str, ...]
    agents_per_game: int
    """Of each run, once all are finished."""
    agent_steps: int
    curves: tuple[LearningCurve, ...]
    """Of finished agents, in the order of initializations, games, runs and seeds."""
    training: Mapping[str, Training] = field(default_factory=dict)
    """By initialization, where it is known."""
    random_agents: int | None = None
    """Agents from random starts in each game, if not as many as of each run."""
    dropped: int = 0
    """Agents that diverged and were dropped, of which there is no curve."""

    @property
    def agents(self) -> int:
        """How many there are once all are finished."""
        each = {RANDOM: self.random_agents} if self.random_agents else {}
        agents = (
            len(runs) * each.get(name, self.agents_per_game) for name, runs in self.runs.items()
        )
        return sum(agents) * len(self.games)

    @property
    def complete(self) -> bool:
        return len(self.curves) + self.dropped == self.agents

    def of(self, initialization: str, game: str) -> Sequence[LearningCurve]:
        return [
            curve
            for curve in self.curves
            if (curve.initialization, curve.game) == (initialization, game)
        ]


def read_evaluation(folder: RunFolder) -> EvaluationResults:
    """Read an evaluation's finished agents; a RunFolderError if it is none, or is damaged."""
    described = folder.read_state(0).get("evaluation") if folder.latest() is not None else None
    if not isinstance(described, dict):
        raise RunFolderError(
            f"{folder.path}: is no evaluation; `leap-rl evaluate --init ...` makes one"
        )
    try:
        agents = agents_of(described)
        found: dict[int, dict[str, Any]]
        if folder.latest():
            found = _committed(folder)
            dropped = len(agents) - len(found)
        else:
            found, dropped = _finished(folder, len(agents))
        names, games = tuple(described["initializations"]), tuple(described["games"])
        runs = {name: described["runs"].get(name, [name]) for name in names}
        own_starts = described["own_starts"]
    except KeyError as error:
        raise RunFolderError(
            f"{folder.path}: has no {error.args[0]}: an earlier leap_rl made this evaluation; "
            "evaluate again"
        ) from None
    except RunFolderError:
        raise
    except ValueError as error:
        raise RunFolderError(f"{folder.checkpoint(0)}: {error}") from None
    curves = [
        LearningCurve(**agent._asdict(), **found[slot])
        for slot, agent in enumerate(agents)
        if slot in found
    ]
    curves.sort(key=lambda c: (names.index(c.initialization), games.index(c.game), c.run, c.seed))
    return EvaluationResults(
        initializations=names,
        runs=runs,
        own_starts=own_starts,
        games=games,
        agents_per_game=described["seeds"],
        agent_steps=described["agent_steps"],
        curves=tuple(curves),
        training={
            name: Training(agent_steps=each["agent_steps"], games=tuple(each["games"]))
            for name, each in described.get("training", {}).items()
        },
        random_agents=described.get("random_agents"),
        dropped=dropped,
    )


def _committed(folder: RunFolder) -> dict[int, dict[str, Any]]:
    """Return the arrays of each slot of a closed round that was not dropped."""
    files, state = folder.read_checkpoint(1)
    path = folder.curves(0)
    data = folder.read_result(path, state)
    try:
        episodes = read_episodes(data)
    except ValueError as error:
        raise RunFolderError(f"{path}: {error}") from None
    slots, agent_steps = episodes["slot"], episodes["agent_steps"]
    returns = episodes["episode_return"]
    if REWARDS not in files:
        raise KeyError(REWARDS)
    try:
        earned = load(files[REWARDS])
        return {
            int(slot): {
                "restarted": state["slots"][int(slot)]["restarts"] > 0,
                "interval_ends": _vector(earned["interval_ends"][row]),
                "rewards": _vector(earned["rewards"][row]),
                "agent_steps": agent_steps[slots == slot],
                "returns": returns[slots == slot],
            }
            for row, slot in enumerate(_vector(earned["slots"]))
        }
    except (SafetensorError, LookupError, TypeError, ValueError) as error:
        reason = " ".join(str(error).split())[:200]
        raise RunFolderError(
            f"{folder.checkpoint(1)}: has no rewards of agents: {reason}"
        ) from None


def _vector(values: Any) -> NDArray[Any]:
    """Return values [R]; ValueError if they are no finite numbers."""
    if values.ndim != 1 or not np.isfinite(values).all():
        raise ValueError(f"{values.dtype} {list(values.shape)}")
    vector: NDArray[Any] = values
    return vector


def _finished(folder: RunFolder, slots: int) -> tuple[dict[int, dict[str, Any]], int]:
    """Return the arrays of each slot that is complete, and how many were dropped."""
    found: dict[int, dict[str, Any]] = {}
    dropped = 0
    for slot in range(slots):
        try:
            arrays, header = decode_arrays(read_regular(folder.slot(0, slot)))
            content = header["content"]
            if "dropped" in content:
                dropped += 1
                continue
            curve = [dataclass_from_json(CurvePoint, one) for one in content["record"]["curve"]]
            ends, rewards = reward_intervals(curve)
            found[slot] = {
                "restarted": content["restarts"] > 0,
                "interval_ends": ends,
                "rewards": rewards,
                "agent_steps": _vector(arrays["agent_steps"]),
                "returns": _vector(arrays["returns"]),
            }
        except (OSError, ChecksumError, LookupError, TypeError, ValueError):
            continue  # not complete yet; or damaged, which a resume reports
    return found, dropped
