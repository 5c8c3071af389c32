"""One Gymnasium environment, made by its name, whose episodes are functions of seed and actions."""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from functools import partial
from importlib import import_module
from typing import Any

import gymnasium
import numpy as np

from leap_rl.envs.gymnasium.ids import parse_game
from leap_rl.envs.gymnasium.spaces import ObservationAdapter, actions_of, adapter_of
from leap_rl.envs.small import cart_pole
from leap_rl.envs.state import Observations

MINATAR = "MinAtar/"
"""What MinAtar's ids begin with."""

ACTION = "H"
"""The type of a recorded action, of module `array`: two bytes, unsigned."""


def make_one(game: str, *, palette: bool = False) -> Any:
    """Make one environment, a `gymnasium.Env`.

    Args:
        game: as `gymnasium_ids.parse_game` reads it. If it names a module, that is imported.
        palette: paint MinAtar's games in common colors, see `minatar.colors`; other games are not
            changed.

    Raises:
        ValueError: there is none of that name, or it cannot be made; the message says why.
    """
    parsed = parse_game(game)
    try:
        if parsed.module is not None:
            import_module(parsed.module)
        if parsed.id.startswith(MINATAR):
            # Imported here: others need not wait for the compiled loops to be loaded.
            from leap_rl.envs.minatar import single

            return single.make(parsed, palette=palette)
        _register(parsed.id)
        arguments: dict[str, Any] = dict(parsed.arguments)
        return gymnasium.make(parsed.id, disable_env_checker=True, **arguments)
    except Exception as error:  # whatever an environment of somebody's own may raise
        raise ValueError(f"task.games: {game!r} {_why(error, parsed.module)}") from error


class EpisodeRunner:
    """One environment, episode after episode.

    Args:
        game: as `make_one` takes it.
        index: the environment's number among all; the seeds of its episodes derive from it.
        remake: make the environment again for each episode.
        palette: see `make_one`.

    Raises:
        ValueError: there is no such game, or it has spaces that no agent here can use.
    """

    adapter: ObservationAdapter
    actions: range
    """The environment's own numbers of the actions 0..A-1."""

    def __init__(self, game: str, *, index: int, remake: bool, palette: bool) -> None:
        self._game = game
        self._make = partial(make_one, game, palette=palette)
        self._remake = remake
        self._index = index
        self._env: Any = self._make()
        self._used = False
        try:
            self.adapter = adapter_of(self._env.observation_space)
            self.actions = actions_of(self._env.action_space)
        except ValueError as error:
            self._env.close()
            raise ValueError(f"task.games: {game!r} {error}") from None
        self.seed = 0
        """Of all environments."""
        self.episode = -1
        """Counts from 0."""
        self.episode_return = 0.0
        """So far."""
        self.recorded = array(ACTION)
        """The actions of the episode so far."""

    def begin(self, *, episode: int) -> Observations:
        """Start an episode; returns its first observation."""
        if self._remake and self._used:
            self._env.close()
            self._env = self._make()
        self._used = True
        self.episode = episode
        self.episode_return = 0.0
        self.recorded = array(ACTION)
        observation, _ = self._env.reset(seed=episode_seed(self.seed, self._index, episode))
        return self.adapter.show(observation)

    def step(self, action: int) -> tuple[Observations, float, bool, bool]:
        """Take an action in 0..A-1; returns the observation, the reward, and how it ended."""
        self.recorded.append(action)
        observation, reward, terminated, truncated, _ = self._env.step(self.actions[action])
        self.episode_return += float(reward)
        return self.adapter.show(observation), float(reward), bool(terminated), bool(truncated)

    def replay(self, *, episode: int, actions: Sequence[int]) -> tuple[Observations, bool]:
        """Play an episode again; returns its last observation, and whether it has ended."""
        observation, ended = self.begin(episode=episode), False
        for action in actions:
            observation, _, terminated, truncated = self.step(action)
            ended |= terminated or truncated
        return observation, ended

    def close(self) -> None:
        """Free what the environment holds."""
        self._env.close()


def episode_seed(seed: int, index: int, episode: int) -> int:
    """Return the seed of an environment's episode, in [0, 2**31): some generators take no more."""
    sequence = np.random.SeedSequence(seed, spawn_key=(index, episode))
    return int(sequence.generate_state(1)[0]) >> 1


def check_fits(game: str, adapter: ObservationAdapter, shape: Sequence[int]) -> None:
    """Refuse a shape that observations cannot be padded to.

    Raises:
        ValueError: it has other dimensions, or is smaller.
    """
    if len(adapter.shape) != len(shape) or any(
        own > whole for own, whole in zip(adapter.shape, shape, strict=True)
    ):
        raise ValueError(
            f"task.gymnasium.observation_shape = {list(shape)}: {game!r} has observations of "
            f"{list(adapter.shape)}, which do not fit"
        )


def _register(name: str) -> None:
    """Make an id known to Gymnasium where that takes an import of ours."""
    if name == cart_pole.CART_POLE and name not in gymnasium.registry:
        gymnasium.register(
            name,
            entry_point=f"{cart_pole.__name__}:{cart_pole.CartPole.__name__}",
            max_episode_steps=cart_pole.TIME_LIMIT,
        )


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
