"""Gymnasium environments by their ids. Importing this imports neither torch nor Gymnasium."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from leap_rl.envs.names import parse_game
from leap_rl.tasks.options import TaskOptions
from leap_rl.tasks.suite import GameSuite, T, check_games

if TYPE_CHECKING:
    from leap_rl.envs.workers import Slice


class GymnasiumSuite(GameSuite):
    """Environments by their ids, a user's own too."""

    kind = "gymnasium"
    options = ("agent_steps", "num_envs", "unroll_length", "gymnasium")
    reward_clip = math.inf
    spreads_environments = True

    def resolve_games(self, games: Sequence[str]) -> tuple[str, ...]:
        if list(games) in ([], ["pretraining"], ["all"]):
            raise ValueError(
                f"task.games = {list(games)}: task.kind = {self.kind} has no pools; name one or "
                "more ids, such as CartPole-v1"
            )
        ids = tuple(parse_game(game).name for game in games)
        return check_games(self.kind, ids, ids)

    def imports(self, task: TaskOptions) -> tuple[str, ...]:
        modules = (parse_game(game).module for game in task.resolved_games)
        return tuple(dict.fromkeys(module for module in modules if module is not None))

    def resolve(self, task: T) -> T:
        """Return the options with the shape of the observations.

        Each game is tried for a while: ValueError if one cannot be made, cannot be played here, or
        does not repeat itself, or if they have no shape in common.
        """
        from leap_rl.envs.games import check_repeats

        shape = self._common_shape(task)
        for game in task.resolved_games:
            check_repeats(game, remake=task.gymnasium.remake, palette=task.gymnasium.palette)
        return replace(task, gymnasium=replace(task.gymnasium, observation_shape=list(shape)))

    def check_machine(self, task: TaskOptions) -> None:
        self._common_shape(task)

    def observation_shape(self, task: TaskOptions) -> tuple[int, ...]:
        """Return the shape that was written down, or else the games' own."""
        return task.gymnasium.shape or self._common_shape(task)

    def continuous_actions(self, task: TaskOptions) -> bool:
        from leap_rl.envs.games import has_continuous_actions

        return any(map(has_continuous_actions, task.resolved_games))

    def environments(self, task: TaskOptions, game: str) -> Slice:
        from leap_rl.envs.replayed import ReplayedEnvs

        own = task.gymnasium
        shape = self.observation_shape(task)
        return partial(ReplayedEnvs, game, shape=shape, remake=own.remake, palette=own.palette)

    def _common_shape(self, task: TaskOptions) -> tuple[int, ...]:
        from leap_rl.envs.games import common_shape

        own = task.gymnasium
        return common_shape(task.resolved_games, pad=own.pad, palette=own.palette, wanted=own.shape)
