"""One of MinAtar's games as a `gymnasium.Env`, for whatever takes these."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
from gymnasium.envs.registration import EnvSpec
from gymnasium.spaces import Box, Discrete
from numpy.typing import NDArray

from leap_rl.envs.gymnasium.ids import GymnasiumGame
from leap_rl.envs.minatar.colors import cell_table, show
from leap_rl.envs.minatar.common import SIZE
from leap_rl.envs.minatar.games import Episodes, GameOptions, name_and_options


class MinAtarGame(gymnasium.Env[NDArray[Any], np.int64]):
    """A game: bool [10, 10, C], or uint8 [10, 10, 3] painted in `colors.COLORS`.

    Args:
        name: a key of `games.GAMES`.
        palette: whether it is painted.
        options: those of `games.GameOptions`.

    Raises:
        ValueError: An option's value cannot be meant.
        TypeError: There is no such option.
    """

    def __init__(self, name: str, *, palette: bool = False, **options: Any) -> None:
        self._episodes = Episodes(name, GameOptions(**options), count=1)
        self._table = cell_table(self._episodes.things, palette=palette)
        shape = (SIZE, SIZE, self._table.shape[1])
        self._dtype: Any = np.uint8 if palette else np.bool_
        self.observation_space = Box(0, 255 if palette else 1, shape, self._dtype)
        self.action_space = Discrete(self._episodes.num_actions)

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[NDArray[Any], dict[str, Any]]:
        """Start an episode, with a seed in [0, 2**32) or one that is drawn."""
        super().reset(seed=seed)
        if seed is None:
            seed = int(self.np_random.integers(2**32))
        self._episodes.begin(np.zeros(1, dtype=np.int64), np.array([seed]))
        return self._look(), {}

    def step(self, action: np.int64) -> tuple[NDArray[Any], float, bool, bool, dict[str, Any]]:
        """Take an action."""
        rewards, over = self._episodes.step(np.array([action]))
        return self._look(), float(rewards[0]), bool(over[0]), False, {}

    def _look(self) -> NDArray[Any]:
        pixels = np.zeros((1, SIZE, SIZE, self._table.shape[1]), dtype=np.uint8)
        show(self._episodes.cells(), self._table, pixels)
        seen: NDArray[Any] = pixels[0].astype(self._dtype)
        return seen


def make(game: GymnasiumGame, *, palette: bool) -> Any:
    """Make one environment.

    Args:
        game: of MinAtar's; its arguments are those of `games.GameOptions` and of `gymnasium.make`.
        palette: whether it is painted.

    Raises:
        ValueError: MinAtar has no such game, or an option's value cannot be meant.
        TypeError: There is no such option.
    """
    name, options = name_and_options(game.id)
    spec = EnvSpec(
        id=game.id,
        entry_point=f"{__name__}:{MinAtarGame.__name__}",
        kwargs={"name": name, "palette": palette, **options},
    )
    arguments: dict[str, Any] = dict(game.arguments)
    return gymnasium.make(spec, disable_env_checker=True, **arguments)
