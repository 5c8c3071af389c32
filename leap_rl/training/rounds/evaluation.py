"""Learning games without meta-learning: one round, from one initialization or from several.

A learning run has a slot for each game. An evaluation's agents differ in their encoders.

Every agent is a slot of the round, so that all of them run at once over the trainers, with the
leases, snapshots and equal bits of a meta-step's tasks.

Initializations come as groups: the runs of one method. Paired agents, of the same game and seed,
differ only in their initialization: heads, emulators and the draws of actions are the same. The
baseline draws a random encoder for each seed: a single draw would measure the draw, not the method.
What is mixed with an initialization is that same encoder of the agent's seed.

Dimensions: P flattened shared parameters.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor

from leap_rl.core.seeding import Purpose, derive_seed
from leap_rl.learners.task import TaskSpec
from leap_rl.networks.parameters import Layout
from leap_rl.sharing.initialization import load_tensors, mixed, save_tensors
from leap_rl.storage.locked_folder import RunFolderError
from leap_rl.storage.run_folder import INITIALIZATION, RunFolder
from leap_rl.tracking.metrics import Unit
from leap_rl.training.messages import CURVE_POINTS, CurvePoint, FloatVector
from leap_rl.training.rounds.evaluation_slots import RANDOM, REWARDS, Agent, agents_of, rewards_file
from leap_rl.training.rounds.meta_training import task_seed
from leap_rl.training.rounds.plan import ClosedRound, FilledRound
from leap_rl.training.rounds.rows import dropped_row, evaluation_row, learn_row, timed


@dataclass(frozen=True, kw_only=True, slots=True)
class EvaluationFactory:
    """Makes an evaluation's first checkpoint, and its plan from it."""

    seed: int
    games: tuple[str, ...]
    seeds: int
    """Agents of each run in each game."""
    agent_steps: int
    """Budget of each agent."""
    layout: Layout
    random_initialization: Callable[[int], Tensor]
    """Draws an encoder, float32 [P], from a seed."""
    random: bool = True
    """Whether random encoders are a baseline."""
    random_agents: int | None = None
    """Agents from random encoders in each game; none for as many as of each run."""
    save_agents: bool = False

    def write_first_checkpoint(
        self,
        folder: RunFolder,
        given: Mapping[str, Sequence[tuple[str, Tensor]]],
        own_starts: Mapping[str, str] | None = None,
        mixes: Mapping[str, float] | None = None,
        *,
        training: Mapping[str, Any] | None = None,
    ) -> None:
        """Write the given initializations, and the description of their agents.

        Args:
            folder: The evaluation's.
            given: By group, the name of each of its runs and its initialization, float32 [P].
            own_starts: For groups whose runs' own random starts are given as a group too, the name
                of that one; its runs have the same order.
            mixes: For groups whose agents start from a mix, the share of their initializations.
            training: By group, what made its runs' initializations, as plain values.
        """
        every = [theta0 for group in given.values() for _, theta0 in group]
        files = {
            _file(number): save_tensors(self.layout.named(theta0))
            for number, theta0 in enumerate(every)
        }
        runs = {name: [run for run, _ in group] for name, group in given.items()}
        described = self._description(runs, own_starts or {}, mixes or {})
        described["training"] = dict(training or {})
        folder.write_checkpoint(0, files, {"evaluation": described})

    def __call__(self, folder: RunFolder) -> EvaluationPlan:
        files, state = folder.read_checkpoint(0)
        try:
            described = state["evaluation"]
            agents_of(described)  # which checks it
            mixes = described.get("mixes", {})
            own = self._description(described["runs"], described["own_starts"], mixes)
            if {name: described[name] for name in own} != own:
                raise ValueError("it is of other games, seeds or budgets")
            given = [
                np.array(self.layout.pack(load_tensors(files[_file(number)])).numpy())
                for number in range(len(files))
            ]
        except (KeyError, TypeError, ValueError) as error:
            raise RunFolderError(
                f"{folder.checkpoint(0)}: is no checkpoint of this evaluation: {error}"
            ) from None
        return EvaluationPlan(self, described, given)

    def _description(
        self,
        runs: Mapping[str, Sequence[str]],
        own_starts: Mapping[str, str],
        mixes: Mapping[str, float],
    ) -> dict[str, Any]:
        baseline = [RANDOM] if self.random else []
        return {
            "initializations": [*baseline, *runs],
            "runs": dict(runs),
            "own_starts": dict(own_starts),
            "games": list(self.games),
            "seeds": self.seeds,
            "agent_steps": self.agent_steps,
            **({"mixes": dict(mixes)} if mixes else {}),
            **({"random_agents": self.random_agents} if self.random_agents else {}),
        }


@dataclass(slots=True)
class EvaluationPlan:
    """The plan of an evaluation: one round with a slot for each agent.

    A slot's starting point is its run's number; each of the baseline's seeds has one of its own,
    and so has each seed of a run that is mixed with random encoders.
    """

    factory: EvaluationFactory
    described: Mapping[str, Any]
    """Groups, runs, games and seeds, as they stand in the first checkpoint."""
    given: Sequence[FloatVector]
    """Of the runs of all groups, in order, [P] each."""
    _drawn: dict[int, FloatVector] = field(default_factory=dict)

    rounds = 1

    @property
    def saves_agents(self) -> bool:
        return self.factory.save_agents

    def theta0(self, start_index: int = 0) -> FloatVector:
        if start_index < len(self.given):
            return self.given[start_index]
        if start_index not in self._drawn:
            self._drawn[start_index] = self._draw(start_index)
        return self._drawn[start_index]

    def _draw(self, start_index: int) -> FloatVector:
        mixed_run, seed = divmod(start_index - len(self.given), self._most_seeds)
        own = derive_seed(self.factory.seed, Purpose.INITIALIZATION, "evaluation", seed)
        random = self.factory.random_initialization(own)
        if mixed_run:  # from 1
            name, _ = self._starts[mixed_run - 1]
            learned = torch.from_numpy(self.given[mixed_run - 1])
            random = mixed(learned, random, self.described["mixes"][name])
        return np.array(random.numpy())

    def open(self, round_number: int) -> list[TaskSpec]:
        """Return a task for each agent; seeds come one after the other, as whole pairs."""
        return [
            TaskSpec(
                game=agent.game,
                seed=derive_seed(
                    self.factory.seed, Purpose.TASK, "evaluation", agent.game, agent.seed
                ),
                start_index=self._start_index(agent),
            )
            for agent in self.agents()
        ]

    def agents(self) -> list[Agent]:
        return agents_of(self.described)

    def close(self, filled: FilledRound) -> ClosedRound:
        """Make rows of the learning curves: means over runs and seeds, point by point."""
        by_spec = {slot.spec: slot.record.curve for slot in filled.slots}
        specs, agents = self.open(filled.number), self.agents()
        of_slots = {slot: by_spec[spec] for slot, spec in enumerate(specs) if spec in by_spec}
        budget = max(curve[-1].agent_steps for curve in of_slots.values())
        # Updates may differ in length between agents, and so may their intervals.
        parts: dict[int, dict[tuple[str, str], list[CurvePoint]]] = {}
        for slot, curve in of_slots.items():
            key = (agents[slot].initialization, agents[slot].game)
            for point in curve:
                part = point.agent_steps * CURVE_POINTS // budget
                parts.setdefault(part, {}).setdefault(key, []).append(point)
        rows = []
        for _, here in sorted(parts.items()):
            agent_steps = max(point.agent_steps for group in here.values() for point in group)
            means = {
                key: sum(point.return_sum for point in group) / episodes
                for key, group in here.items()
                if (episodes := sum(point.episodes for point in group))
            }
            rows.append(evaluation_row(agent_steps, means))
        return ClosedRound(rows=timed(rows, filled), files={REWARDS: rewards_file(of_slots)})

    @property
    def _starts(self) -> list[tuple[str, int]]:
        """The group and the number of each run, in order."""
        return [
            (name, run) for name, of in self.described["runs"].items() for run in range(len(of))
        ]

    def _start_index(self, agent: Agent) -> int:
        if agent.initialization == RANDOM:
            return len(self.given) + agent.seed
        start = self._starts.index((agent.initialization, agent.run))
        if agent.initialization in self.described.get("mixes", {}):
            return len(self.given) + (1 + start) * self._most_seeds + agent.seed
        return start

    @property
    def _most_seeds(self) -> int:
        return max(self.factory.seeds, self.factory.random_agents or 0)


def _file(number: int) -> str:
    return f"initialization-{number}.safetensors"


@dataclass(frozen=True, kw_only=True, slots=True)
class LearningFactory:
    """Makes a run's first checkpoint, and its plan from it."""

    seed: int
    games: tuple[str, ...]
    layout: Layout
    unit: Unit = "agent_steps"
    """The unit of the tasks' budgets."""

    def write_first_checkpoint(self, folder: RunFolder, theta0: Tensor) -> None:
        """Write the initialization, float32 [P], that every agent starts from."""
        files = {INITIALIZATION: save_tensors(self.layout.named(theta0))}
        folder.write_checkpoint(0, files, {})

    def __call__(self, folder: RunFolder) -> Learning:
        files, _ = folder.read_checkpoint(0)
        try:
            theta0 = self.layout.pack(load_tensors(files[INITIALIZATION]))
        except (KeyError, ValueError) as error:
            raise RunFolderError(
                f"{folder.checkpoint(0)}: is no checkpoint of this run: {error}"
            ) from None
        return Learning(self, np.array(theta0.numpy()))


@dataclass(slots=True)
class Learning:
    """The plan of a learning run: a slot for each game, all from one initialization."""

    factory: LearningFactory
    initialization: FloatVector
    """Of all agents, [P]."""

    saves_agents = True
    rounds = 1

    def theta0(self, start_index: int = 0) -> FloatVector:
        return self.initialization

    def open(self, round_number: int) -> list[TaskSpec]:
        return [
            TaskSpec(game=game, seed=task_seed(self.factory.seed, round_number, slot))
            for slot, game in enumerate(self.factory.games)
        ]

    def close(self, filled: FilledRound) -> ClosedRound:
        unit = self.factory.unit
        rows = [
            learn_row(slot.spec.game, point, unit)
            for slot in filled.slots
            for point in slot.record.curve
        ]
        rows += [dropped_row(slot, unit) for slot in filled.dropped]
        return ClosedRound(rows=timed(rows, filled))
