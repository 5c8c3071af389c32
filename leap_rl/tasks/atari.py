"""Atari games, with their modes and difficulties. Importing this imports no torch."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING

from leap_rl.envs.atari.games import resolve_games
from leap_rl.tasks.options import TaskOptions
from leap_rl.tasks.suite import GameSuite

if TYPE_CHECKING:
    from leap_rl.envs.workers import Slice


class AtariSuite(GameSuite):
    """ALE's games, with their modes and difficulties."""

    kind = "atari"
    options = ("agent_steps", "num_envs", "unroll_length", "atari")
    records_video = True
    spreads_environments = True
    # More than ten actions, so not in the pool to pretrain on, and none of the paper's nine either.
    validation_games = ("boxing", "seaquest")
    evaluation_games = "held_out"

    def resolve_games(self, games: Sequence[str]) -> tuple[str, ...]:
        return resolve_games(list(games))

    def frames_per_agent_step(self, task: TaskOptions) -> int:
        return task.atari.settings.frameskip

    def observation_shape(self, task: TaskOptions) -> tuple[int, ...]:
        return task.atari.settings.observation_shape

    def life_loss_ends(self, task: TaskOptions) -> bool:
        return task.atari.settings.life_loss_ends

    def environments(self, task: TaskOptions, game: str) -> Slice:
        from leap_rl.envs.atari.envs import AtariEnvs
        from leap_rl.envs.atari.modes import find_mode

        return partial(AtariEnvs, find_mode(game).name, settings=task.atari.settings)
