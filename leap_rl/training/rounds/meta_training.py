"""Meta-training: rounds that draw games, average contributions and step the initialization.

The paper's algorithm 1, served to many trainers at once: line 4 is `draw_games`, lines 5 to
11 are the tasks that the trainers run, line 12 is `MetaTraining.close`.

Dimensions: P flattened shared parameters.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

import numpy as np
import torch
from torch import Tensor

from leap_rl.core.errors import RunFailedError
from leap_rl.core.seeding import Purpose, derive_seed
from leap_rl.learners.task import TaskSpec
from leap_rl.meta.gradient_path import NonFiniteError
from leap_rl.meta.outer_step import OuterStep
from leap_rl.networks.parameters import Layout
from leap_rl.sharing.initialization import load_tensors, save_tensors
from leap_rl.storage.locked_folder import RunFolderError
from leap_rl.storage.run_folder import INITIALIZATION, RunFolder
from leap_rl.tracking.metrics import Unit
from leap_rl.training.messages import FloatVector
from leap_rl.training.rounds.plan import ClosedRound, FilledRound
from leap_rl.training.rounds.rows import meta_step_row, norm, timed
from leap_rl.training.rounds.validation import Validation, ValidationState

OUTER_OPTIMIZER = "outer_optimizer.safetensors"


def draw_games(seed: int, meta_step: int, games: Sequence[str], batch_size: int) -> list[str]:
    """Draw a meta-step's games without replacement; all of them come before any comes again."""
    # Sorting by a keyed hash is a uniform shuffle that no library's next version can change.
    batch: list[str] = []
    for repetition in range(-(-batch_size // len(games))):
        batch += sorted(
            games, key=lambda game: derive_seed(seed, Purpose.GAMES, meta_step, repetition, game)
        )
    return batch[:batch_size]


def task_seed(seed: int, round_number: int, slot: int) -> int:
    """Return the own seed of the task in a round's slot."""
    return derive_seed(seed, Purpose.TASK, round_number, slot)


@dataclass(frozen=True, kw_only=True, slots=True)
class MetaTrainingFactory:
    """Makes a run's first checkpoint, and its plan from the newest one."""

    seed: int
    games: tuple[str, ...]
    batch_size: int
    meta_steps: int
    meta_lr: float
    optimizer: Literal["adam", "sgd"]
    layout: Layout
    frames_per_agent_step: int
    unit: Unit = "agent_steps"
    """The unit of the tasks' budgets."""
    validation: Validation | None = None
    """Which games judge the initialization meanwhile."""

    def write_first_checkpoint(self, folder: RunFolder, theta0: Tensor) -> None:
        """Write version 0 of the initialization, float32 [P]."""
        files = initialization_files(self.layout, self._outer_step(theta0))
        folder.write_checkpoint(0, files, {"agent_steps": 0})

    def __call__(self, folder: RunFolder) -> MetaTraining:
        number = folder.latest()
        assert number is not None, "a run is made with its checkpoint 0"
        files, state = folder.read_checkpoint(number)
        try:
            outer = self._outer_step(self.layout.pack(load_tensors(files[INITIALIZATION])))
            outer.load_state_dict(load_tensors(files[OUTER_OPTIMIZER]))
            agent_steps = int(state["agent_steps"])
            validation_state = ValidationState.from_state(state)
        except (KeyError, TypeError, ValueError) as error:
            raise RunFolderError(
                f"{folder.checkpoint(number)}: is no checkpoint of this run: {error}"
            ) from None
        return MetaTraining(self, outer, agent_steps, validation_state)

    def adopt(self, files: Mapping[str, bytes], *, keep_optimizer: bool) -> dict[str, bytes]:
        """Return the files of the checkpoint that a fork starts with, from those of a run's.

        Without `keep_optimizer` the outer optimizer starts from scratch.

        Raises:
            ValueError: They do not fit this run's parameters or its optimizer.
        """
        outer = self._outer_step(self.layout.pack(load_tensors(files[INITIALIZATION])))
        if keep_optimizer:
            outer.load_state_dict(load_tensors(files[OUTER_OPTIMIZER]))
        return initialization_files(self.layout, outer)

    def _outer_step(self, theta0: Tensor) -> OuterStep:
        return OuterStep(theta0, optimizer=self.optimizer, meta_lr=self.meta_lr)


@dataclass(slots=True)
class MetaTraining:
    """The plan of a meta-training run; each of its rounds is a meta-step."""

    factory: MetaTrainingFactory
    outer: OuterStep
    agent_steps: int
    """Of all meta-steps so far."""
    validation_state: ValidationState
    _theta0: FloatVector = field(init=False)

    saves_agents = False

    def __post_init__(self) -> None:
        self._theta0 = self.outer.theta.numpy().copy()

    @property
    def rounds(self) -> int:
        return self.factory.meta_steps

    def theta0(self, start_index: int = 0) -> FloatVector:
        return self._theta0

    def open(self, round_number: int) -> list[TaskSpec]:
        """Draw the meta-step's games; those that judge its initialization come last."""
        factory = self.factory
        games = draw_games(factory.seed, round_number, factory.games, factory.batch_size)
        batch = [
            TaskSpec(game=game, seed=task_seed(factory.seed, round_number, slot))
            for slot, game in enumerate(games)
        ]
        judging = factory.validation.specs(factory.seed, round_number) if factory.validation else []
        return batch + judging

    def close(self, filled: FilledRound) -> ClosedRound:
        """Average the contributions in slot order and take one step of the initialization."""
        judging = [slot for slot in filled.slots if slot.spec.validates and not slot.cut_off]
        whole = filled
        filled = replace(
            filled,
            slots=[slot for slot in filled.slots if not slot.spec.validates],
            dropped=[slot for slot in filled.dropped if not slot.spec.validates],
        )
        # Copies: a contribution may lie in memory that its runtime shares read-only.
        contributions = [torch.from_numpy(np.array(slot.contribution)) for slot in filled.slots]
        initialization_norm = norm(self.outer.theta)
        try:
            result = self.outer.step(contributions)
        except NonFiniteError as error:
            raise RunFailedError(f"meta-step {filled.number}: {error}") from None
        self.validation_state, validation = self.validation_state.judge(filled.number, judging)
        row = meta_step_row(
            filled,
            contributions,
            result,
            initialization_norm=initialization_norm,
            agent_steps_before=self.agent_steps,
            frames_per_agent_step=self.factory.frames_per_agent_step,
            validation=validation,
            unit=self.factory.unit,
        )
        self.agent_steps += sum(slot.record.agent_steps for slot in filled.slots)
        self._theta0 = result.theta.numpy().copy()
        return ClosedRound(
            rows=timed([row], whole),
            files=initialization_files(self.factory.layout, self.outer),
            state={"agent_steps": self.agent_steps, **self.validation_state.state()},
            best=self.validation_state.best,
        )


def initialization_files(layout: Layout, outer: OuterStep) -> dict[str, bytes]:
    """Return a checkpoint's files: the initialization by name, and the outer optimizer."""
    return {
        INITIALIZATION: save_tensors(layout.named(outer.theta)),
        OUTER_OPTIMIZER: save_tensors(outer.state_dict()),
    }
