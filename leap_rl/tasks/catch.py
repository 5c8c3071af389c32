"""Catch, a small pixel game, for trying things out. Importing this imports no torch."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from leap_rl.tasks.options import TaskOptions
from leap_rl.tasks.suite import GameSuite, check_games

if TYPE_CHECKING:
    from leap_rl.envs.workers import Slice

CATCH_GAMES = ("catch", "catch_mirrored", "catch_up", "catch_dark")
"""The variants, see `leap_rl.envs.small.catch`."""


class CatchSuite(GameSuite):
    """The variants of Catch."""

    kind = "catch"
    options = ("agent_steps", "num_envs", "unroll_length")

    def resolve_games(self, games: Sequence[str]) -> tuple[str, ...]:
        if list(games) in (["pretraining"], ["all"]):
            return CATCH_GAMES
        return check_games(self.kind, tuple(games), CATCH_GAMES)

    def observation_shape(self, task: TaskOptions) -> tuple[int, ...]:
        return (84, 84, 3)

    def environments(self, task: TaskOptions, game: str) -> Slice:
        from leap_rl.envs.small.catch import CatchEnvs

        return lambda *, num_envs, first: CatchEnvs(game, num_envs=num_envs)
