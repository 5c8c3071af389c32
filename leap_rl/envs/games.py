"""The games that `replayed` makes environments of: what they are, and how they are made by id."""

from __future__ import annotations

from typing import Protocol

import numpy as np
from gymnasium.spaces import Box
from numpy.typing import NDArray

from leap_rl.envs.gymnasium.games import GymnasiumGames
from leap_rl.envs.state import Actions, Observations
from leap_rl.envs.vector import GameVector


class Games(Protocol):
    """B games of one kind, each in an episode of its own."""

    num_actions: int
    """A of discrete actions; of continuous ones D, the numbers that one has."""
    continuous: bool
    observation_space: Box
    """Of one game: uint8, which an encoder scales, or float32, which it takes as it is."""

    def begin(self, which: NDArray[np.int64], seeds: NDArray[np.int64]) -> None:
        """Begin an episode in the games [K] with each one's seed."""

    def step(
        self, actions: Actions, which: slice = slice(None)
    ) -> tuple[NDArray[np.float64], NDArray[np.bool_], NDArray[np.bool_]]:
        """Take an action in each game, or in some; see `state.Actions`.

        Returns:
            Rewards, terminated and truncated of each of these games.
        """

    def show(self, observations: Observations) -> None:
        """Write what the games look like into the corner of [B, ...]."""

    def close(self) -> None:
        """Free what the games hold."""


def make_games(game: str, *, count: int, remake: bool = False, palette: bool = False) -> Games:
    """Make B games of one id, without the rest of a vector environment.

    Args:
        game: as `gymnasium.ids.parse_game` reads it. If it names a module, that is imported.
        count: B.
        remake: make an environment again for each episode; MinAtar's leave nothing behind.
        palette: paint MinAtar's games in common colors, see `minatar.colors`.

    Raises:
        ValueError: there is no such game, or it has spaces that no agent here can use.
    """
    if game.startswith("MinAtar/"):
        # Imported here: others need not wait for the compiled loops to be loaded.
        from leap_rl.envs.minatar.games import MinAtarGames

        return MinAtarGames(game, count=count, palette=palette)
    return GymnasiumGames(game, count=count, remake=remake)


def random_actions(
    games: Games | GameVector, count: int, generator: np.random.Generator
) -> Actions:
    """Draw an action for each of so many games."""
    if games.continuous:
        numbers = generator.uniform(-1.0, 1.0, size=(count, games.num_actions))
        return numbers.astype(np.float32)
    return generator.integers(games.num_actions, size=count)
