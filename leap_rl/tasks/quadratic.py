"""How bowls are made of a config. Importing this costs no import of torch."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from leap_rl.tasks.family import Family, check_games

if TYPE_CHECKING:
    from torch import Tensor

    from leap_rl.learners.learner import Learner
    from leap_rl.learners.task import Task, TaskSpec
    from leap_rl.networks.parameters import Layout

QUADRATIC_GAMES = tuple(f"bowl_{index}" for index in range(8))
"""The quadratic tasks: bowls in a space of a few dimensions, each with its own lowest point."""


class QuadraticFamily(Family):
    """The bowls."""

    kind = "quadratic"
    plain_descent = True
    options = ("agent_steps", "num_envs", "unroll_length", "atari")
    compared_by = "evaluate games"

    def resolve_games(self, games: Sequence[str]) -> tuple[str, ...]:
        """Return the bowls; pretraining and all are all of them."""
        if list(games) in (["pretraining"], ["all"]):
            return QUADRATIC_GAMES
        return check_games(self.kind, tuple(games), QUADRATIC_GAMES)

    def check_machine(self, tasks: Learner) -> None:
        """Refuse nothing: any machine will do."""

    def make(self, tasks: Learner, spec: TaskSpec) -> Task:
        """Make the task of descending a bowl."""
        from leap_rl.learners.gradient_descent.task import QuadraticTask

        return QuadraticTask(
            spec, config=tasks.task, lr=tasks.agent.lr, loss_difference=tasks.loss_difference
        )

    def shared_layout(self, tasks: Learner) -> Layout:
        """Return the layout of the point."""
        from leap_rl.learners.gradient_descent.task import shared_layout

        return shared_layout()

    def random_initialization(self, tasks: Learner, seed: int) -> Tensor:
        """Draw a point."""
        from leap_rl.learners.gradient_descent.task import random_initialization

        return random_initialization(seed)
