"""A user's own `gymnasium.vector.VectorEnv` as B environments of a game, stepped at its own speed.

It is stepped whole, and seeded once, by `reset(seed=...)`; of what it draws then nothing is known
here. In `AutoresetMode.NEXT_STEP` the actions after an end are marked as `VectorStep.ignored`.

Snapshots take two methods that Gymnasium does not have. `get_state()` returns arrays of numbers by
name, on which alone the future depends. `set_state(state)` continues from them in a new VectorEnv,
in place of `reset`.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Any

import numpy as np
from gymnasium.spaces import Box
from gymnasium.vector import AutoresetMode
from numpy.typing import NDArray

from leap_rl.envs.games import (
    TRIED_AGENT_STEPS,
    GameError,
    check_fits,
    episode_seed,
    failed,
    failed_trial,
    has_state,
    make_vector_env,
    random_actions,
    traits_of,
)
from leap_rl.envs.spaces import ActionAdapter, adapter_of
from leap_rl.envs.state import IDENTITY, Actions, Observations, State, text_array
from leap_rl.envs.vector import GameVector, RestorableEnvs, Stepped

_OBSERVATIONS, _ENDED, _PREFIX = "observations", "ended", "env."


class OwnVectorEnvs(RestorableEnvs):
    """The B environments of a user's `VectorEnv`.

    Observations that are smaller than `shape`, (H, W, C) or (length,), get zeros at their ends.
    ValueError: there is no such game, it cannot be played here, or it does not fit the shape.
    """

    def __init__(self, game: str, *, num_envs: int, shape: tuple[int, ...], first: int = 0) -> None:
        assert first == 0, "it is never split"
        self._envs = make_vector_env(game, num_envs=num_envs)
        self._adapter = adapter_of(self._envs.single_observation_space)
        self._actions = ActionAdapter(self._envs.single_action_space)
        own = self._adapter.shown
        check_fits(game, own, shape)
        dtype: Any = own.dtype
        super().__init__(
            num_envs,
            Box(own.low.min(), own.high.max(), shape, dtype),
            self._actions.num_actions,
            continuous=self._actions.continuous,
        )
        self.metadata = {"autoreset_mode": self._envs.metadata["autoreset_mode"]}
        self._ends_next_step = self.metadata["autoreset_mode"] is AutoresetMode.NEXT_STEP
        self._game = game
        self._identity = f"vector {game} {list(shape)}"
        self._shape, self._dtype = (num_envs, *shape), dtype
        self._corner = tuple(map(slice, own.shape))
        self._ended = np.zeros(num_envs, dtype=np.bool_)
        # Never written to: the caller holds the newest.
        self._observations: Observations = np.zeros(self._shape, dtype)

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Observations, dict[str, Any]]:
        own = None if seed is None else episode_seed(seed, 0, 0)
        try:
            observations, _ = self._envs.reset(seed=own)
            self._observations = self._shown(observations)
        except (ValueError, OSError) as error:
            raise failed(self._game, error) from error
        self._ended = np.zeros(self.num_envs, dtype=np.bool_)
        return self._observations, {}

    def step(self, actions: Actions) -> Stepped:
        try:
            observations, *parts, told = self._envs.step(self._actions.take_all(actions))
            rewards = np.array(parts[0], dtype=np.float64)
            terminated, truncated = (np.array(part, dtype=np.bool_) for part in parts[1:])
            self._observations = self._shown(observations)
        except (ValueError, OSError) as error:
            raise failed(self._game, error) from error
        info: dict[str, Any] = {}
        if self._ends_next_step:
            ignored, self._ended = self._ended, terminated | truncated
            if (ignored & self._ended).any():
                raise ValueError(
                    f"task.games: {self._game!r} ended an episode in the step that began it; in "
                    "AutoresetMode.NEXT_STEP that step only resets"
                )
            rewards[ignored] = 0.0
            info = {"ignored": ignored, "final_obs": self._observations}
        elif (cut_off := truncated & ~terminated).any():
            info = {"final_obs": self._last(told, cut_off)}
        return self._observations, rewards, terminated, truncated, info

    def state(self) -> State:
        """See `RestorableEnvs.state`; ValueError if the `VectorEnv` has no `get_state`."""
        if not has_state(self._envs):
            raise ValueError(
                f"task.games: {self._game!r} cannot be restored from a snapshot, as its VectorEnv "
                "has no get_state and set_state"
            )
        envs: Any = self._envs
        own = {f"{_PREFIX}{name}": np.array(part) for name, part in envs.get_state().items()}
        for name, part in own.items():
            if part.dtype.kind not in "biuf":
                raise ValueError(
                    f"task.games: {self._game!r} has a get_state whose "
                    f"{name.removeprefix(_PREFIX)} is no array of numbers"
                )
        return {
            IDENTITY: text_array(self._identity),
            _OBSERVATIONS: self._observations.copy(),
            _ENDED: self._ended.copy(),
            **own,
        }

    def restore(self, state: Mapping[str, NDArray[Any]]) -> Observations:
        identity = bytes(state[IDENTITY]).decode(errors="replace")
        if identity != self._identity or state[_ENDED].shape != self._ended.shape:
            raise ValueError(
                f"state.{IDENTITY} = {identity} of {len(state[_ENDED])}: must be "
                f"{self._identity} of {self.num_envs}; restore into environments made alike"
            )
        # Copies: what is restored may be a view of a file.
        own = {
            name.removeprefix(_PREFIX): np.array(part)
            for name, part in state.items()
            if name.startswith(_PREFIX)
        }
        envs: Any = self._envs
        envs.set_state(own)
        self._ended = np.array(state[_ENDED])
        self._observations = np.array(state[_OBSERVATIONS])
        return self._observations

    def close_extras(self, **kwargs: Any) -> None:
        # Gymnasium's destructor closes too, even half constructed environments.
        if "_envs" in self.__dict__:
            self._envs.close()

    def _shown(self, observations: Any) -> Observations:
        """Return observations [B, ...] as agents see them, in an array of their own."""
        shown: Observations = np.zeros(self._shape, self._dtype)
        shown[(slice(None), *self._corner)] = self._adapter.show_all(observations)
        return shown

    def _last(self, told: Mapping[str, Any], cut_off: NDArray[np.bool_]) -> Observations:
        """Return the last observations of episodes that were cut off, [B, ...], others zero."""
        last: Observations = np.zeros(self._shape, self._dtype)
        found = told.get("final_obs", [None] * self.num_envs)
        for index in np.flatnonzero(cut_off):
            if found[index] is None:
                raise ValueError(
                    f'task.games: {self._game!r} truncated an episode without info["final_obs"] '
                    "of it; in AutoresetMode.SAME_STEP its value is wanted"
                )
            last[index][self._corner] = self._adapter.show(found[index])
        return last


@lru_cache(maxsize=128)
def check_vector_env(game: str, *, num_envs: int, shape: tuple[int, ...]) -> None:
    """Raise ValueError for a `VectorEnv` that does not repeat itself, as far as a trial shows.

    It plays random actions twice from the same seed, and half of them again from a snapshot if it
    has those.
    """
    try:
        repeats, resumes = _trial(game, num_envs, shape)
    except Exception as error:  # whatever somebody's own environment may raise
        if str(error).startswith("task.games: ") and not isinstance(error, GameError):
            raise
        raise failed_trial(game, error) from error
    if not repeats:
        raise ValueError(
            f"task.games: {game!r} does not repeat itself: the same seed and actions led "
            "elsewhere; draw from what reset(seed=...) seeds alone"
        )
    if not resumes:
        raise ValueError(
            f"task.games: {game!r} went elsewhere from a snapshot: get_state must return all that "
            "the future depends on, and set_state take it over"
        )


def _trial(game: str, num_envs: int, shape: tuple[int, ...]) -> tuple[bool, bool]:
    """Return whether it repeats itself from its seed, and from a snapshot, if it has any."""
    first, again, resumed = (
        GameVector(OwnVectorEnvs(game, num_envs=num_envs, shape=shape), seed=0) for _ in range(3)
    )
    drawn = np.random.default_rng(0)
    before, after = (
        [random_actions(first, num_envs, drawn) for _ in range(TRIED_AGENT_STEPS // 2)]
        for _ in range(2)
    )
    begun = [first.reset().tobytes(), *_play(first, before)]
    state = first.state() if traits_of(game).restorable else None
    rest = _play(first, after)
    repeats = [again.reset().tobytes(), *_play(again, before + after)] == begun + rest
    resumes = True
    if state is not None:
        resumed.restore(state)
        resumes = rest == _play(resumed, after)
    for games in (first, again, resumed):
        games.close()
    return repeats, resumes


def _play(games: GameVector, actions: list[Actions]) -> list[bytes]:
    steps = map(games.step, actions)
    return [
        b"".join(
            part.tobytes()
            for part in (step.observations, step.rewards, step.terminated, step.truncated)
        )
        for step in steps
    ]
