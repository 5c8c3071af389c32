"""MinAtar's games as a vector environment: B of them stepped in one compiled loop."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from gymnasium.spaces import Box, Discrete
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space
from numpy.typing import NDArray

from leap_rl.envs.gymnasium.episode_runner import ACTION, check_fits, episode_seed
from leap_rl.envs.gymnasium.ids import parse_game
from leap_rl.envs.gymnasium.replay import does_not_repeat, identity_of, pattern
from leap_rl.envs.gymnasium.spaces import adapter_of
from leap_rl.envs.minatar.colors import cell_table, show
from leap_rl.envs.minatar.common import SIZE
from leap_rl.envs.minatar.games import Episodes, options_of
from leap_rl.envs.state import (
    IDENTITY,
    Observations,
    State,
    check_state,
    join_bytes,
    split_bytes,
    text_array,
)

_ROOM = 1024
"""Agent steps of an episode that there is room for at first."""


class MinAtarEnvs(VectorEnv[Observations, NDArray[np.int64], NDArray[Any]]):
    """What `gymnasium_envs.GymnasiumEnvs` is for any game: the same episodes and the same states.

    Args:
        game: one that `games.options_of` knows.
        num_envs: B.
        shape: of an observation as the agent sees it; a smaller one gets zeros at its ends.
        remake: changes nothing: an episode leaves nothing behind.
        palette: whether games are painted in `colors.COLORS`.
        first: the number of the first of these environments among all; for `workers`.

    Raises:
        ValueError: There is no such game, an option of it cannot be meant, or its observations are
            larger than `shape`.
    """

    identity: str
    """Game and settings: what a state has to agree with."""
    metadata: dict[str, Any] = {"autoreset_mode": AutoresetMode.SAME_STEP}  # noqa: RUF012

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
        self.identity = identity_of(game, shape=shape, remake=remake, palette=palette)
        self._game = game
        options = options_of(parse_game(game))
        assert options is not None, game
        self._playing = Episodes(*options, count=num_envs)
        self._table = cell_table(self._playing.things, palette=palette)
        own = Box(0, 255, (SIZE, SIZE, self._table.shape[1]), np.uint8)
        check_fits(game, adapter_of(own), shape)
        self.num_envs = num_envs
        self._seen = self.single_observation_space = Box(0, 255, shape, np.uint8)
        self.single_action_space = Discrete(self._playing.num_actions)
        self.observation_space = batch_space(self.single_observation_space, num_envs)
        self.action_space = batch_space(self.single_action_space, num_envs)
        self._first = first
        self._shape = (num_envs, *shape)
        self._all = np.arange(num_envs)
        self._seeds = np.zeros(num_envs, dtype=np.int64)  # of all environments
        self._episodes = np.full(num_envs, -1)
        self._returns = np.zeros(num_envs, dtype=np.float64)
        self._lengths = np.zeros(num_envs, dtype=np.int64)
        self._recorded = np.zeros((num_envs, _ROOM), dtype=ACTION)
        self._observations = np.zeros(self._shape, dtype=np.uint8)

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

    def step(
        self, actions: NDArray[np.int64]
    ) -> tuple[
        Observations, NDArray[np.float64], NDArray[np.bool_], NDArray[np.bool_], dict[str, Any]
    ]:
        """Take one action in each environment."""
        rewards, over = self._playing.step(actions)
        self._record(actions)
        self._returns += rewards
        self._observations = self._look()
        info: dict[str, Any] = {}
        if over.any():
            final = self._observations
            final[~over] = 0
            info = {"final_obs": final, "_final_obs": over}
            self._begin_next(np.flatnonzero(over))
            self._observations = self._look()
        return self._observations, rewards, over, np.zeros_like(over), info

    def state(self) -> State:
        """Return all that the future depends on, as copies; change nothing."""
        actions, sizes = join_bytes(
            [self._recorded[index, :length].tobytes() for index, length in enumerate(self._lengths)]
        )
        return {
            IDENTITY: text_array(self.identity),
            "seeds": self._seeds.copy(),
            "episodes": self._episodes.copy(),
            "actions": actions,
            "actions_sizes": sizes,
            "returns": self._returns.copy(),
            "observations": self._observations.copy(),
        }

    def restore(self, state: Mapping[str, NDArray[Any]]) -> Observations:
        """Go on from a state, in freshly made environments, and return the observations.

        Raises:
            ValueError: The state is of another game, of other settings or another B, or it was
                changed.
        """
        like = pattern(self.num_envs, self._seen)
        check_state(state, identity=self.identity, like=like)
        self._seeds[:], self._episodes[:] = state["seeds"], state["episodes"] - 1
        self._begin_next(self._all)
        for index, part in enumerate(split_bytes(state["actions"], state["actions_sizes"])):
            actions = np.frombuffer(part, dtype=ACTION)
            if (actions >= self._playing.num_actions).any():
                raise ValueError(f"state.actions: has some that {self._game!r} does not have")
            returned, ended = self._play(index, actions)
            if ended or returned != state["returns"][index]:
                raise does_not_repeat(self._game, len(actions))
        self._observations = self._look()
        for index, observation in enumerate(self._observations):
            if not np.array_equal(observation, state["observations"][index]):
                raise does_not_repeat(self._game, int(self._lengths[index]))
        return self._observations

    def _begin_next(self, which: NDArray[np.int64]) -> None:
        """Begin the next episode of some of the environments."""
        self._episodes[which] += 1
        self._returns[which] = 0.0
        self._lengths[which] = 0
        seeds = [
            episode_seed(int(self._seeds[index]), self._first + index, int(self._episodes[index]))
            for index in which.tolist()
        ]
        self._playing.begin(which, np.array(seeds))

    def _record(self, actions: NDArray[np.int64], which: Any = slice(None)) -> None:
        """Write down an action of each environment."""
        if (room := self._recorded.shape[1]) in self._lengths:
            self._recorded = np.pad(self._recorded, ((0, 0), (0, room)))
        self._recorded[self._all[which], self._lengths[which]] = actions
        self._lengths[which] += 1

    def _play(self, index: int, actions: NDArray[np.uint16]) -> tuple[float, bool]:
        """Play actions again in one environment; return the return, and whether it has ended."""
        one, ended = slice(index, index + 1), False
        for action in actions.astype(np.int64):
            rewards, over = self._playing.step(action[None], one)
            self._returns[one] += rewards
            self._record(action, one)
            ended |= bool(over[0])
        return float(self._returns[index]), ended

    def _look(self) -> NDArray[np.uint8]:
        """Return what the games look like, as a new array."""
        observations = np.zeros(self._shape, dtype=np.uint8)
        show(self._playing.cells(), self._table, observations)
        return observations
