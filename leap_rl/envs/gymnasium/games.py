"""Gymnasium environments made by their names."""

from __future__ import annotations

from importlib import import_module
from typing import Any

import gymnasium
import numpy as np
from numpy.typing import NDArray

import leap_rl.envs.small.cart_pole  # noqa: F401  registers leap_rl/CartPole-v1
from leap_rl.envs.gymnasium.ids import parse_game
from leap_rl.envs.gymnasium.spaces import ActionAdapter, adapter_of
from leap_rl.envs.state import Actions, Observations


def make_one(game: str) -> Any:
    """Make a `gymnasium.Env`, importing its module; ValueError if it cannot be made."""
    parsed = parse_game(game)
    try:
        if parsed.module is not None:
            import_module(parsed.module)
        arguments: dict[str, Any] = dict(parsed.arguments)
        return gymnasium.make(parsed.id, disable_env_checker=True, **arguments)
    except Exception as error:  # whatever an environment of somebody's own may raise
        raise ValueError(f"task.games: {game!r} {_why(error, parsed.module)}") from error


class GymnasiumGames:
    """B environments, each in an episode of its own; see `envs.games.Games` and `make_games`."""

    def __init__(self, game: str, *, count: int, remake: bool) -> None:
        self._game = game
        self._remake = remake
        self._envs: list[Any] = [make_one(game) for _ in range(count)]
        try:
            self._adapter = adapter_of(self._envs[0].observation_space)
            self._actions = ActionAdapter(self._envs[0].action_space)
        except ValueError as error:
            self.close()
            raise ValueError(f"task.games: {game!r} {error}") from None
        self.observation_space = self._adapter.shown
        self.num_actions, self.continuous = self._actions.num_actions, self._actions.continuous
        shape = (count, *self.observation_space.shape)
        self._seen: Observations = np.zeros(shape, dtype=self.observation_space.dtype)
        self._used = [False] * count

    def begin(self, which: NDArray[np.int64], seeds: NDArray[np.int64]) -> None:
        """Reset the environments [K] with each one's seed."""
        for index, seed in zip(which.tolist(), seeds.tolist(), strict=True):
            if self._remake and self._used[index]:
                self._envs[index].close()
                self._envs[index] = make_one(self._game)
            self._used[index] = True
            observation, _ = self._envs[index].reset(seed=seed)
            self._seen[index] = self._adapter.show(observation)

    def step(
        self, actions: Actions, which: slice = slice(None)
    ) -> tuple[NDArray[np.float64], NDArray[np.bool_], NDArray[np.bool_]]:
        """Take an action in each environment, or in some; see `envs.games.Games`."""
        rewards = np.zeros(len(actions))
        terminated, truncated = np.zeros((2, len(actions)), dtype=np.bool_)
        seen, show, take = self._seen[which], self._adapter.show, self._actions.take
        for k, (env, action) in enumerate(zip(self._envs[which], actions.tolist(), strict=True)):
            observation, reward, over, cut_off, _ = env.step(take(action))
            rewards[k] = float(reward)
            if over or cut_off:
                terminated[k], truncated[k] = over, cut_off
            seen[k] = show(observation)
        return rewards, terminated, truncated

    def show(self, observations: Observations) -> None:
        """Write the last observations into the corner of [B, ...]."""
        corner = tuple(slice(size) for size in self._seen.shape)
        observations[corner] = self._seen

    def close(self) -> None:
        """Close the environments."""
        for env in self._envs:
            env.close()


def _why(error: Exception, module: str | None) -> str:
    """Say why an environment cannot be made, and what helps."""
    missing = error.name if isinstance(error, ModuleNotFoundError) else None
    if missing and module is not None and f"{module}.".startswith(f"{missing}."):
        return (
            f"needs the module {missing}, which is not found; install it, or put its folder on "
            "PYTHONPATH"
        )
    text = " ".join(str(error).split()) or type(error).__name__
    return f"cannot be made ({type(error).__name__}: {text})"
