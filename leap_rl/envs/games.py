"""Games by their Gymnasium ids: how they are made, stepped, and checked for use in one pool."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from functools import lru_cache
from importlib import import_module
from typing import Any, NamedTuple, Protocol

import gymnasium
import numpy as np
from gymnasium.error import NameNotFound, NamespaceNotFound
from gymnasium.spaces import Box
from gymnasium.vector import AutoresetMode, VectorEnv
from numpy.typing import NDArray

import leap_rl.envs.small.cart_pole  # noqa: F401  registers leap_rl/CartPole-v1
from leap_rl.envs.gymnasium_config import Pad
from leap_rl.envs.names import parse_game
from leap_rl.envs.spaces import ActionAdapter, adapter_of
from leap_rl.envs.state import Actions, Observations
from leap_rl.envs.vector import GameVector

_REGISTERED_BY: dict[str, str] = {}
"""Modules that games name, by the ids that importing them registered."""

TRIED_AGENT_STEPS = 100
"""Agent steps of the trial episodes of `check_repeats`."""


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
        """Take an action in each game, or in some, none of which is over; see `state.Actions`.

        Returns the rewards, terminated and truncated of these games.
        """

    def show(self, observations: Observations) -> None:
        """Write what the games look like into the corner of [B, ...]."""

    def close(self) -> None:
        """Free what the games hold."""


def make_one(game: str) -> Any:
    """Make a `gymnasium.Env`, importing its module; ValueError if it cannot be made."""
    return _made(game, gymnasium.make, disable_env_checker=True)


def make_vector_env(game: str, *, num_envs: int) -> VectorEnv[Any, Any, Any]:
    """Make B environments as their own `VectorEnv`, as `make_one`."""
    made: VectorEnv[Any, Any, Any] = _made(game, gymnasium.make_vec, num_envs=num_envs)
    mode = made.metadata.get("autoreset_mode")
    if mode in (AutoresetMode.SAME_STEP, AutoresetMode.NEXT_STEP) and made.num_envs == num_envs:
        return made
    found = f"autoreset mode {mode}" if made.num_envs == num_envs else f"{made.num_envs}"
    made.close()
    raise ValueError(
        f"task.games: {game!r} has {found}, and must be a VectorEnv of the {num_envs} environments "
        "that it is asked for, whose metadata says AutoresetMode.SAME_STEP or NEXT_STEP"
    )


def is_vector_env(game: str) -> bool:
    """Return whether a game is a `VectorEnv`; ValueError if its module cannot be imported.

    It is if its id is registered with a `vector_entry_point` alone, or if it is asked for by
    `gymnasium.make_vec`'s argument `vectorization_mode`.
    """
    if game.startswith("MinAtar/"):
        return False
    parsed = parse_game(game)
    _imported(game)
    spec = gymnasium.registry.get(parsed.id.rpartition(":")[2])
    alone = spec is not None and spec.entry_point is None
    return alone or "vectorization_mode" in parsed.arguments


def _made(game: str, make: Callable[..., Any], **options: Any) -> Any:
    parsed = parse_game(game)
    _imported(game)
    try:
        return make(parsed.id, **options, **parsed.arguments)
    except Exception as error:  # whatever an environment of somebody's own may raise
        raise ValueError(f"task.games: {game!r} {_why(error, parsed.module)}") from error


def _imported(game: str) -> None:
    module = parse_game(game).module
    if module is None or module in sys.modules:
        return
    before = set(gymnasium.registry)
    try:
        import_module(module)
    except (Exception, SystemExit) as error:
        raise ValueError(f"task.games: {game!r} {_why(error, module)}") from error
    _REGISTERED_BY.update(dict.fromkeys(gymnasium.registry.keys() - before, module))


def check_names_module(game: str) -> None:
    """Raise ValueError for a game without a module that is known by another game's alone.

    Where that other game is not played it could not be made.
    """
    if game.startswith("MinAtar/"):
        return
    parsed = parse_game(game)
    if parsed.module is None and (module := _REGISTERED_BY.get(parsed.id)):
        raise ValueError(
            f"task.games: {game!r} is registered by the module {module}; name it too, as "
            f"{module}:{game}"
        )


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
        for index, seed in zip(which.tolist(), seeds.tolist(), strict=True):
            if self._remake and self._used[index]:
                self._envs[index].close()
                self._envs[index] = make_one(self._game)
            self._used[index] = True
            try:
                observation, _ = self._envs[index].reset(seed=seed)
                self._seen[index] = self._adapter.show(observation)
            except (ValueError, OSError) as error:
                raise failed(self._game, error) from error

    def step(
        self, actions: Actions, which: slice = slice(None)
    ) -> tuple[NDArray[np.float64], NDArray[np.bool_], NDArray[np.bool_]]:
        rewards = np.zeros(len(actions))
        terminated, truncated = np.zeros((2, len(actions)), dtype=np.bool_)
        seen, show, take = self._seen[which], self._adapter.show, self._actions.take
        pairs = zip(self._envs[which], actions.tolist(), strict=True)
        try:
            for k, (env, action) in enumerate(pairs):
                observation, reward, over, cut_off, _ = env.step(take(action))
                rewards[k] = float(reward)
                if over or cut_off:
                    terminated[k], truncated[k] = over, cut_off
                seen[k] = show(observation)
        except (ValueError, OSError) as error:
            raise failed(self._game, error) from error
        return rewards, terminated, truncated

    def show(self, observations: Observations) -> None:
        corner = tuple(slice(size) for size in self._seen.shape)
        observations[corner] = self._seen

    def close(self) -> None:
        for env in self._envs:
            env.close()


class GameError(RuntimeError):
    """An environment's own ValueError or OSError, its cause, which a traceback explains.

    By itself it would pass for a mistake in the options, and be told in one line.
    """


def failed(game: str, error: ValueError | OSError) -> GameError:
    """Return the error to raise from an environment's own."""
    return GameError(f"task.games: {game!r} raised {type(error).__name__}: {error}")


def failed_trial(game: str, error: Exception) -> ValueError:
    """Return the one line of an environment that raised an error before a run began."""
    cause = error.__cause__ if isinstance(error, GameError) else error
    reason = f"{type(cause).__name__}: {cause}"
    return ValueError(f"task.games: {game!r} failed when it was tried ({reason})")


def make_games(game: str, *, count: int, remake: bool = False, palette: bool = False) -> Games:
    """Make B games of one id, as `names.parse_game` reads it; a module that it names is imported.

    `remake` makes an environment again for each episode; MinAtar's need not. `palette` paints
    MinAtar's games in common colors, see `minatar.games`. ValueError: there is no such game, or it
    has spaces that no agent here can use.
    """
    if game.startswith("MinAtar/"):
        # Imported here: other games need no compiled loops.
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


def episode_seed(seed: int, index: int, episode: int) -> int:
    """Return the seed of an environment's episode, in [0, 2**31): some generators take no more."""
    sequence = np.random.SeedSequence(seed, spawn_key=(index, episode))
    return int(sequence.generate_state(1)[0]) >> 1


def check_fits(game: str, space: Box, shape: Sequence[int]) -> None:
    """Raise ValueError for a shape that a game's observations cannot be padded to."""
    if len(space.shape) != len(shape) or any(
        own > whole for own, whole in zip(space.shape, shape, strict=True)
    ):
        raise ValueError(
            f"task.gymnasium.observation_shape = {list(shape)}: {game!r} has observations of "
            f"{list(space.shape)}, which do not fit"
        )


@lru_cache(maxsize=8)
def common_shape(
    games: tuple[str, ...],
    *,
    pad: Pad,
    palette: bool = False,
    wanted: tuple[int, ...] | None = None,
) -> tuple[int, ...]:
    """Return the shape that observations of all games of a pool have, or are padded to.

    That is `wanted`, or by default the largest, dimension by dimension. ValueError: they have none,
    or a game cannot be made; the message names games and shapes.
    """
    spaces = {game: traits_of(game, palette=palette).observation_space for game in games}
    shapes = {space.shape for space in spaces.values()}
    told = ", ".join(f"{game} {_told(space)}" for game, space in spaces.items())
    if len({(len(space.shape), space.dtype) for space in spaces.values()}) > 1:
        raise ValueError(
            f"task.games: an encoder takes images or vectors, of numbers or of 0 to 255, and the "
            f"games' observations are {told}; take games of one kind"
        )
    shape = wanted or tuple(max(sizes) for sizes in zip(*shapes, strict=True))
    for game, space in spaces.items():
        check_fits(game, space, shape)
    if pad == "refuse" and shapes != {shape}:
        raise ValueError(
            f"task.gymnasium.pad = refuse: the games' observations are {told}, and the encoder's "
            f"input is {list(shape)}; task.gymnasium.pad = zeros fills up with zeros; or take "
            "games of one shape"
        )
    return shape


class GameTraits(NamedTuple):
    """What a game is like, found by making one."""

    observation_space: Box
    """See `Games`."""
    num_actions: int
    continuous: bool
    next_step: bool = False
    """True of a user's own `VectorEnv` in `AutoresetMode.NEXT_STEP`."""
    restorable: bool = True
    """Whether it can be restored from a snapshot."""


@lru_cache(maxsize=128)
def traits_of(game: str, *, palette: bool = False) -> GameTraits:
    """Return what a game is like; ValueError as `make_games`."""
    if not is_vector_env(game):
        games = make_games(game, count=1, palette=palette)
        games.close()
        return GameTraits(games.observation_space, games.num_actions, games.continuous)
    envs = make_vector_env(game, num_envs=1)
    try:
        shown = adapter_of(envs.single_observation_space).shown
        actions = ActionAdapter(envs.single_action_space)
    except ValueError as error:
        raise ValueError(f"task.games: {game!r} {error}") from None
    finally:
        envs.close()
    return GameTraits(
        shown,
        actions.num_actions,
        actions.continuous,
        next_step=envs.metadata["autoreset_mode"] is AutoresetMode.NEXT_STEP,
        restorable=has_state(envs),
    )


def has_state(envs: VectorEnv[Any, Any, Any]) -> bool:
    """Return whether a user's vector has `get_state` and `set_state`."""
    return all(callable(getattr(envs, name, None)) for name in ("get_state", "set_state"))


def check_repeats(game: str, *, remake: bool, palette: bool = False) -> None:
    """Raise ValueError for an environment that does not repeat itself, as far as a trial shows.

    It plays a short episode of random actions twice, the second time after another one.
    """
    try:
        fresh = _episode(game, remake=remake, palette=palette, after_another=False)
        used = _episode(game, remake=remake, palette=palette, after_another=True)
    except Exception as error:  # whatever somebody's own environment may raise
        raise failed_trial(game, error) from error
    if fresh == used:
        return
    if not remake and fresh == _episode(game, remake=remake, palette=palette, after_another=False):
        raise ValueError(
            f"task.games: {game!r} starts an episode otherwise than in a new environment, though "
            "the seed is the same: reset leaves something of the last episode behind; "
            "task.gymnasium.remake = true makes a new environment for each"
        )
    raise ValueError(
        f"task.games: {game!r} does not repeat itself: the same seed and actions led elsewhere, so "
        "that a run of it could be neither repeated nor resumed; draw from self.np_random, "
        "which reset(seed=...) seeds, alone"
    )


def _episode(game: str, *, remake: bool, palette: bool, after_another: bool) -> list[object]:
    games = make_games(game, count=1, remake=remake, palette=palette)
    shape = (1, *games.observation_space.shape)
    drawn = np.random.default_rng(0)
    actions = [random_actions(games, 1, drawn) for _ in range(TRIED_AGENT_STEPS)]
    seen: list[object] = []
    for episode in (1, 0) if after_another else (0,):
        games.begin(np.array([0]), np.array([episode_seed(0, 0, episode)]))
        observation = np.zeros(shape, dtype=games.observation_space.dtype)
        games.show(observation)
        seen = [observation.tobytes()]
        for action in actions:
            parts = games.step(action)
            games.show(observation)
            seen.append((observation.tobytes(), *(part.item() for part in parts)))
            if parts[1] or parts[2]:
                break
    games.close()
    return seen


def _told(space: Box) -> str:
    return f"{list(space.shape)}{'' if space.dtype == np.uint8 else ' of numbers'}"


def _why(error: BaseException, module: str | None) -> str:
    """Say why an environment cannot be made, and what helps."""
    missing = error.name if isinstance(error, ModuleNotFoundError) else None
    if missing and module is not None and f"{module}.".startswith(f"{missing}."):
        return (
            f"needs the module {missing}, which is not found; install it, or put its folder on "
            "PYTHONPATH"
        )
    text = " ".join(str(error).split()) or type(error).__name__
    told = f"cannot be made ({type(error).__name__}: {text})"
    if isinstance(error, NameNotFound | NamespaceNotFound) and module is None:
        told += "; where a module of yours registers it, name that too, as my_games:Maze-v0"
    return told
