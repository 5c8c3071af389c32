"""MinAtar's five games (Young and Tian 2019), repaired where need be, in channels or in colors.

MinAtar shows a game as 10 × 10 cells with a plane of booleans for each kind of thing. How many
planes there are, and what they mean, differs from game to game: the second is the ball in Breakout
and a car in Freeway. An encoder that games share can make little of that, so that `palette` paints
all of them as pictures in which things of the same role have the same color.
"""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
from gymnasium.spaces import Box
from numpy.typing import NDArray

NAMESPACE = "MinAtar/"
"""What its ids begin with."""

COLORS: dict[str, tuple[int, int, int]] = {
    # What shows which way something goes, or how fast.
    "trail": (96, 96, 96),
    "speed1": (64, 0, 0),
    "speed2": (96, 0, 0),
    "speed3": (128, 0, 0),
    "speed4": (160, 0, 0),
    "speed5": (192, 0, 0),
    # What is to be avoided, or shot.
    "enemy": (255, 0, 0),
    "car": (255, 0, 0),
    "alien": (255, 0, 0),
    "alien_left": (255, 64, 0),
    "alien_right": (255, 0, 64),
    "enemy_fish": (255, 0, 0),
    "enemy_sub": (255, 64, 64),
    "enemy_bullet": (255, 0, 255),
    # What is to be had, or hit.
    "gold": (255, 255, 0),
    "brick": (255, 255, 0),
    "diver": (255, 255, 0),
    "friendly_bullet": (0, 255, 255),
    "ball": (255, 255, 255),
    # The player, and what is left to him.
    "oxygen_guage": (0, 0, 255),
    "diver_guage": (0, 128, 255),
    "sub_back": (0, 128, 0),
    "player": (0, 255, 0),
    "paddle": (0, 255, 0),
    "chicken": (0, 255, 0),
    "sub_front": (0, 255, 0),
    "cannon": (0, 255, 0),
}
"""The color of each of MinAtar's kinds of things. What comes later covers what comes earlier."""


def register() -> None:
    """Make MinAtar's ids known to Gymnasium.

    Raises:
        ModuleNotFoundError: minatar is not installed.
    """
    from minatar.gym import register_envs

    if f"{NAMESPACE}Breakout-v1" not in gymnasium.registry:
        register_envs()


class Repaired(gymnasium.Wrapper[Any, Any, Any, Any]):
    """One of MinAtar's games, each episode of which is a function of its seed and its actions.

    MinAtar (1.0.15) repeats an action with probability 0.1, and at the start of an episode that
    action is the last one of the episode before. Here it is the one that does nothing, as it is in
    the first episode.
    """

    def reset(self, **how: Any) -> tuple[Any, dict[str, Any]]:
        """Start an episode."""
        game: Any = self.unwrapped
        game.game.last_action = 0
        return self.env.reset(**how)


class Palette(gymnasium.ObservationWrapper[Any, Any, Any]):
    """One of MinAtar's games as uint8 [10, 10, 3], painted in `COLORS` on black."""

    def __init__(self, env: gymnasium.Env[Any, Any]) -> None:
        super().__init__(env)
        game: Any = env.unwrapped
        channels: dict[str, int] = game.game.env.channels
        self._layers = [(channels[name], COLORS[name]) for name in COLORS if name in channels]
        assert len(self._layers) == len(channels), channels
        height, width, _ = env.observation_space.shape or ()
        self.observation_space = Box(0, 255, (height, width, 3), np.uint8)

    def observation(self, observation: NDArray[np.bool_]) -> NDArray[np.uint8]:
        """Paint booleans [10, 10, C]."""
        picture = np.zeros(self.observation_space.shape or (), dtype=np.uint8)
        for channel, color in self._layers:
            picture[observation[:, :, channel].astype(bool)] = color
        return picture
