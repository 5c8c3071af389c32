"""Environments whose snapshots are replayed: any of Gymnasium's, and MinAtar's.

A user's environment cannot be copied in general. So an episode must be a function of its seed,
derived from the task's, and its actions, and a snapshot holds both. Restoring it plays the actions
again, which must lead to the same observation and return.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from gymnasium.spaces import Box
from numpy.typing import NDArray

from leap_rl.core.kernels import any_of, kernel
from leap_rl.envs.games import check_fits, make_games
from leap_rl.envs.seeds import draw_episode_seeds
from leap_rl.envs.state import (
    IDENTITY,
    Actions,
    Observations,
    State,
    check_state,
    join_bytes,
    split_bytes,
    text_array,
)
from leap_rl.envs.vector import RestorableEnvs, Stepped

DISCRETE = "H"
"""The type of a recorded action: two bytes, unsigned. One of continuous actions is float32 [D]."""

_ROOM = 1024
"""Agent steps of an episode for which memory is reserved at first."""


class ReplayedEnvs(RestorableEnvs):
    """B environments of one game.

    Episode e of environment i is reset with `episode_seed(seed, i, e)`: what it plays does not
    depend on B. An observation that is smaller than `shape`, (H, W, C) or (length,), gets zeros at
    its ends; one that is larger is a ValueError. `first` is the number of the first of these
    environments among all, for `workers`. `games.make_games` explains the rest, and errors.
    """

    def __init__(
        self,
        game: str,
        *,
        num_envs: int,
        shape: tuple[int, ...],
        remake: bool = False,
        palette: bool = False,
        first: int = 0,
    ) -> None:
        self._games = make_games(game, count=num_envs, remake=remake, palette=palette)
        own = self._games.observation_space
        check_fits(game, own, shape)
        dtype: Any = own.dtype
        space = Box(own.low.min(), own.high.max(), shape, dtype)
        super().__init__(
            num_envs, space, self._games.num_actions, continuous=self._games.continuous
        )
        self._game = game
        self._identity = f"gymnasium {game} {list(shape)} palette={palette} remake={remake}"
        self._first = first
        self._all = np.arange(num_envs)
        self._seeds = np.zeros(num_envs, dtype=np.int64)  # of all environments
        self._episodes = np.full(num_envs, -1)
        self._returns = np.zeros(num_envs, dtype=np.float64)
        self._lengths = np.zeros(num_envs, dtype=np.int64)
        action_shape = (self.num_actions,) if self.continuous else ()
        self._recorded: NDArray[Any] = np.zeros(
            (num_envs, _ROOM, *action_shape), dtype=np.float32 if self.continuous else DISCRETE
        )
        self._shape, self._dtype = (num_envs, *shape), dtype
        # Never written to: the caller holds the newest.
        self._observations: Observations = np.zeros(self._shape, dtype)

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Observations, dict[str, Any]]:
        """Start an episode in every environment; without a seed it is the next one of each."""
        if seed is None and self._episodes[0] < 0:
            seed = int(np.random.SeedSequence().generate_state(1)[0])
        if seed is not None:
            self._seeds[:], self._episodes[:] = seed, -1
        self._begin_next(self._all)
        self._observations = self._look()
        return self._observations, {}

    def step(self, actions: Actions) -> Stepped:
        rewards, terminated, truncated = self._games.step(actions)
        self._record(actions, rewards)
        self._observations = self._look()
        ended = terminated | truncated
        info: dict[str, Any] = {}
        if any_of(ended):
            final = self._observations
            final[~ended] = 0
            info = {"final_obs": final, "_final_obs": ended}
            self._begin_next(np.flatnonzero(ended))
            self._observations = self._look()
        return self._observations, rewards, terminated, truncated, info

    def state(self) -> State:
        actions, sizes = join_bytes(
            [self._recorded[index, :length].tobytes() for index, length in enumerate(self._lengths)]
        )
        return {
            IDENTITY: text_array(self._identity),
            "seeds": self._seeds.copy(),
            "episodes": self._episodes.copy(),
            "actions": actions,
            "actions_sizes": sizes,
            "returns": self._returns.copy(),
            "observations": self._observations.copy(),
        }

    def restore(self, state: Mapping[str, NDArray[Any]]) -> Observations:
        """See `RestorableEnvs.restore`; ValueError too if seed and actions lead elsewhere now."""
        check_state(state, like=self.state())
        self._seeds[:], self._episodes[:] = state["seeds"], state["episodes"] - 1
        self._begin_next(self._all)
        parts = split_bytes(state["actions"], state["actions_sizes"])
        actions = [self._read(part) for part in parts]
        ended = [self._play(index, recorded) for index, recorded in enumerate(actions)]
        self._observations = self._look()
        differs = self._returns != state["returns"]
        for index, observation in enumerate(self._observations):
            seen = state["observations"][index]
            if ended[index] or differs[index] or observation.tobytes() != seen.tobytes():
                raise ValueError(
                    f"task.games: {self._game!r} does not repeat itself: the seed and the "
                    f"{len(actions[index])} actions of an episode led elsewhere when its snapshot "
                    "was taken. An episode must be a function of both: nothing drawn but from the "
                    "seed of reset, and no other version of the environment"
                )
        return self._observations

    def close_extras(self, **kwargs: Any) -> None:
        # Gymnasium's destructor closes too, even half constructed environments.
        if "_games" in self.__dict__:
            self._games.close()

    def _begin_next(self, which: NDArray[np.int64]) -> None:
        self._episodes[which] += 1
        self._returns[which] = 0.0
        self._lengths[which] = 0
        seeds = np.empty(len(which), dtype=np.int64)
        draw_episode_seeds(self._seeds[which], self._first + which, self._episodes[which], seeds)
        self._games.begin(which, seeds)

    def _read(self, recorded: bytes) -> Actions:
        """Return an episode's recorded actions, one a row; ValueError if the games lack one."""
        actions: Actions
        if self.continuous:
            numbers = np.frombuffer(recorded, dtype=np.float32)
            actions = numbers.reshape(-1, self.num_actions)
            known = np.isfinite(actions).all()
        else:
            actions = np.frombuffer(recorded, dtype=DISCRETE).astype(np.int64)
            known = (actions < self.num_actions).all()
        if not known:
            raise ValueError(f"state.actions: has some that {self._game!r} does not have")
        return actions

    def _record(
        self, actions: Actions, rewards: NDArray[np.float64], which: slice = slice(None)
    ) -> None:
        episodes = self._recorded[which], self._lengths[which], self._returns[which]
        # One that is full has no room for the next.
        if not _append(*episodes, actions, rewards):
            self._recorded = np.concatenate([self._recorded, np.zeros_like(self._recorded)], axis=1)

    def _play(self, index: int, actions: Actions) -> bool:
        """Play actions again in one environment, up to an end; return whether there was one."""
        one = slice(index, index + 1)
        for action in actions:
            rewards, terminated, truncated = self._games.step(action[None], one)
            self._record(action[None], rewards, one)
            if terminated[0] or truncated[0]:
                return True
        return False

    def _look(self) -> Observations:
        observations: Observations = np.zeros(self._shape, self._dtype)
        self._games.show(observations)
        return observations


@kernel
def _append(recorded: Any, lengths: Any, returns: Any, actions: Any, rewards: Any) -> bool:
    """Record an action [K] or [K, D] and its reward in each of K episodes.

    Return whether all have room left.
    """
    room = True
    for k in range(len(lengths)):
        recorded[k, lengths[k]] = actions[k]
        returns[k] += rewards[k]
        lengths[k] += 1
        room &= lengths[k] < recorded.shape[1]
    return room
