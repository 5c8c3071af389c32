"""The trainers that a study's cells share, and how many cells use them at a time."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from leap_rl.runs.execution import ray_options
from leap_rl.studies.config import StudyConfig
from leap_rl.training.config import Joined
from leap_rl.training.interrupts import Interrupts
from leap_rl.training.runtime.ray.environment import share_trainers

if TYPE_CHECKING:
    from leap_rl.training.runtime.ray.shared_trainers import SharedPool

TASKS_A_TRAINER: Final = 4
"""Of all cells at a time. With as many tasks as trainers, whose times differ twofold, trainers are
busy for 0.7 of the time, by simulation; with two runs of as many for 0.99 until the first one ends,
and the rest of it alone. More runs have a shorter end, and cost a driver and a server each."""


@dataclass(frozen=True, kw_only=True)
class Trainers:
    """Those of a study: one in each cell's process, or the pool's."""

    cells_at_a_time: int
    pool: SharedPool | None = None

    @property
    def size(self) -> int:
        return self.cells_at_a_time if self.pool is None else self.pool.size

    @property
    def joined(self) -> Joined | None:
        return None if self.pool is None else self.pool.joined

    def available_s(self, elapsed_s: float) -> float:
        """Return the time that trainers had, over all of them, after so long."""
        return elapsed_s * self.size if self.pool is None else self.pool.available_s

    def tend(self, done: float) -> None:
        """Replace trainers that have died; called often, with the agent steps that are done."""
        if self.pool is not None:
            self.pool.tend(done)


@contextmanager
def trainers_of(study: StudyConfig, interrupts: Interrupts) -> Iterator[Trainers]:
    """Have the trainers of a study for a while; on Ray all cells share them.

    Raises:
        RunFailedError: There is no such cluster.
    """
    if study.runtime.kind == "local":
        yield Trainers(cells_at_a_time=study.trainers_here)
        return
    with share_trainers(
        **ray_options(study.runtime, study.agent),
        max_attempts=study.runtime.max_attempts,
        interrupts=interrupts,
    ) as pool:
        enough = max(2, -(-TASKS_A_TRAINER * pool.size // study.meta.batch_size))
        cells = enough if study.processes == "auto" else study.processes
        yield Trainers(cells_at_a_time=cells, pool=pool)
