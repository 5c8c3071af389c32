"""What an evaluation found: the learning curves of its agents, by initialization, game and seed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields

import numpy as np
from numpy.typing import NDArray

from leap_rl.messages import Episodes
from leap_rl.run_folder import RunFolder, RunFolderError
from leap_rl.sealed import SealError, unseal

RANDOM = "random"
"""Names the baseline: agents whose encoders start at random."""


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class LearningCurve:
    """The episodes of one agent, in the order in which they ended; E of them, maybe none."""

    initialization: str
    """What its encoder started from; `RANDOM` for the baseline."""
    game: str
    seed: int
    """Counts from 0. Agents of the same game and seed are a pair: they share everything but the
    encoder's start."""
    agent_steps: NDArray[np.int64]
    """Agent steps of the task, over its environments, when the episode ended, [E], ascending."""
    returns: NDArray[np.float64]
    """Raw returns, [E]."""
    lengths: NDArray[np.int64]
    """Agent steps of the episode, [E]."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Evaluation:
    """The finished agents of an evaluation."""

    initializations: tuple[str, ...]
    """Names, the baseline first where there is one."""
    games: tuple[str, ...]
    seeds: int
    """Agents that each initialization gets in each game; fewer are finished while it goes on."""
    agent_steps: int
    """Budget of each agent."""
    curves: tuple[LearningCurve, ...]
    """Of finished agents, in the order of initializations, games and seeds."""

    @property
    def complete(self) -> bool:
        """Whether all agents are finished."""
        return len(self.curves) == len(self.initializations) * len(self.games) * self.seeds

    def of(self, initialization: str, game: str) -> Sequence[LearningCurve]:
        """Return the finished agents of an initialization in a game, in the order of seeds."""
        return [
            curve
            for curve in self.curves
            if (curve.initialization, curve.game) == (initialization, game)
        ]


def read_evaluation(folder: RunFolder) -> Evaluation:
    """Read the agents of an evaluation that are finished; changes nothing in its folder.

    Raises:
        RunFolderError: It is no evaluation's folder, or what was committed is damaged.
    """
    state = folder.read_state(0) if folder.latest() is not None else {}
    described = state.get("evaluation")
    if not isinstance(described, dict):
        raise RunFolderError(
            f"{folder.path}: is no evaluation; `leap-rl evaluate --init ...` makes one"
        )
    names, games = tuple(described["initializations"]), tuple(described["games"])
    agents = agents_of(names, games, described["seeds"])
    found = _committed(folder) if folder.latest() else _finished(folder, len(agents))
    curves = [
        LearningCurve(
            initialization=name,
            game=game,
            seed=seed,
            agent_steps=found[slot].agent_steps,
            returns=found[slot].returns,
            lengths=found[slot].lengths,
        )
        for slot, (name, game, seed) in enumerate(agents)
        if slot in found
    ]
    curves.sort(key=lambda c: (names.index(c.initialization), games.index(c.game), c.seed))
    return Evaluation(
        initializations=names,
        games=games,
        seeds=described["seeds"],
        agent_steps=described["agent_steps"],
        curves=tuple(curves),
    )


def agents_of(
    initializations: Sequence[str], games: Sequence[str], seeds: int
) -> list[tuple[str, str, int]]:
    """Return initialization, game and seed of each of an evaluation's slots, in slot order."""
    return [
        (name, game, seed) for seed in range(seeds) for game in games for name in initializations
    ]


def _committed(folder: RunFolder) -> dict[int, Episodes]:
    """Return the episodes of each slot of a closed round; none for those that were dropped."""
    import pyarrow.parquet as pq

    path = folder.curves(0)
    try:
        table = pq.read_table(path, columns=["slot", "agent_steps", "episode_return", "length"])
    except (OSError, ValueError) as error:
        reason = " ".join(str(error).split())
        raise RunFolderError(f"{path}: cannot be read: {reason}") from None
    slots, agent_steps, returns, lengths = (column.to_numpy() for column in table.columns)
    return {
        slot: Episodes(
            agent_steps=agent_steps[slots == slot],
            returns=returns[slots == slot],
            lengths=lengths[slots == slot],
        )
        for slot, entry in enumerate(folder.read_state(1)["slots"])
        if "dropped" not in entry
    }


def _finished(folder: RunFolder, slots: int) -> dict[int, Episodes]:
    """Return the episodes of the slots of an open round that are complete."""
    names = [one.name for one in fields(Episodes)]
    found = {}
    for slot in range(slots):
        try:
            arrays, header = unseal(folder.slot(0, slot).read_bytes())
        except (OSError, SealError):
            continue  # not complete yet; or damaged, which whoever goes on with it will tell
        if "dropped" not in header.get("content", {}):
            found[slot] = Episodes(**{name: arrays[name] for name in names})
    return found
