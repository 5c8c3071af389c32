"""Learning games without meta-learning: one round whose slots keep agents and curves."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from torch import Tensor

from leap_rl.learners.task import TaskSpec
from leap_rl.networks.parameters import Layout
from leap_rl.sharing.initialization import load_tensors, save_tensors
from leap_rl.storage.locked_folder import RunFolderError
from leap_rl.storage.run_folder import INITIALIZATION, RunFolder
from leap_rl.tracking.metrics import Unit
from leap_rl.training.messages import FloatVector
from leap_rl.training.rounds.meta_training import task_seed
from leap_rl.training.rounds.plan import ClosedRound, FilledRound
from leap_rl.training.rounds.rows import dropped_row, learn_row


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
        return ClosedRound(rows=rows + [dropped_row(slot, unit) for slot in filled.dropped])
