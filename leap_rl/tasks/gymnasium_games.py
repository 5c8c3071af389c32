"""What of a config the Gymnasium environments that it names have to say."""

from __future__ import annotations

from dataclasses import replace

from leap_rl.envs.gymnasium_pool import check_repeats, common_shape
from leap_rl.tasks.config import TaskConfig


def settle_games(task: TaskConfig) -> TaskConfig:
    """Return the config with the shape of its observations written down.

    Each game is made, and tried for a few agent steps.

    Raises:
        ValueError: One cannot be made, is none that an agent here can play, or does not repeat
            itself; or they have no shape in common.
    """
    shape = observation_shape(task)
    for game in task.resolved_games:
        check_repeats(game, remake=task.gymnasium.remake, palette=task.gymnasium.palette)
    return replace(task, gymnasium=replace(task.gymnasium, observation_shape=list(shape)))


def observation_shape(task: TaskConfig) -> tuple[int, ...]:
    """Return the shape of what the encoder sees.

    Raises:
        ValueError: A game cannot be made, or they have no shape in common.
    """
    return common_shape(
        task.resolved_games,
        pad=task.gymnasium.pad,
        palette=task.gymnasium.palette,
        wanted=task.gymnasium.shape,
    )
