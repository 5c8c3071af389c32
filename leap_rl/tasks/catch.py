"""Catch, a small pixel game of our own, for trying things out."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from leap_rl.tasks.family import check_games
from leap_rl.tasks.played import PlayedFamily

if TYPE_CHECKING:
    from leap_rl.envs.vector import GameVector
    from leap_rl.learners.learner import Learner
    from leap_rl.tasks.config import TaskConfig

CATCH_GAMES = ("catch", "catch_mirrored", "catch_up", "catch_dark")
"""The variants, see `leap_rl.envs.small.catch`."""


class CatchFamily(PlayedFamily):
    """The variants of Catch."""

    kind = "catch"
    options = ("agent_steps", "num_envs", "unroll_length", "atari")

    def resolve_games(self, games: Sequence[str]) -> tuple[str, ...]:
        """Return the variants; pretraining and all are all of them."""
        if list(games) in (["pretraining"], ["all"]):
            return CATCH_GAMES
        return check_games(self.kind, tuple(games), CATCH_GAMES)

    def observation_shape(self, task: TaskConfig) -> tuple[int, ...]:
        """Return height, width and channels of a screen."""
        return (84, 84, 3)

    def make_envs(self, tasks: Learner, game: str) -> Callable[[int], GameVector]:
        """Return what makes a variant's B environments from a seed."""
        from leap_rl.envs.small.catch import make_catch

        return lambda seed: make_catch(game, num_envs=tasks.task.num_envs, seed=seed)
