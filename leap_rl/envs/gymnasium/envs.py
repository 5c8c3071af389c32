"""Any Gymnasium environment with discrete actions, B of them stepped together.

An environment of somebody's own cannot be copied in general. So an episode is taken to be a
function of its seed and its actions: every episode is reset with a seed derived from the task's,
its actions are recorded, and an environment's snapshot is its seed and these. To restore it they
are played again, in a new environment, which must come to the same observation and return.
"""

from __future__ import annotations

from array import array
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from gymnasium.spaces import Discrete
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space
from numpy.typing import NDArray

from leap_rl.envs.gymnasium.episode_runner import ACTION, EpisodeRunner, check_fits
from leap_rl.envs.gymnasium.replay import (
    does_not_repeat,
    identity_of,
    observation_space,
    pattern,
)
from leap_rl.envs.gymnasium.spaces import padded
from leap_rl.envs.state import (
    IDENTITY,
    Observations,
    State,
    check_state,
    join_bytes,
    split_bytes,
    text_array,
)


class GymnasiumEnvs(VectorEnv[Observations, NDArray[np.int64], NDArray[Any]]):
    """B environments, each going on to its next episode by itself; every step's arrays are new.

    Episode e of environment i is reset with `episode_seed(seed, i, e)`: what it plays does not
    depend on B.

    Args:
        game: as `make_one` takes it.
        num_envs: B.
        shape: of an observation as the agent sees it; a smaller one gets zeros at its ends.
        remake: make an environment again for each episode.
        palette: see `make_one`.
        first: the number of the first of these environments among all; for `workers`.

    Raises:
        ValueError: there is no such game, it has spaces that no agent here can use, or its
            observations are larger than `shape`.
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
        self._runners = [
            EpisodeRunner(game, index=first + number, remake=remake, palette=palette)
            for number in range(num_envs)
        ]
        one = self._runners[0]
        check_fits(game, one.adapter, shape)
        self.num_envs = num_envs
        self._seen = self.single_observation_space = observation_space(one.adapter, shape)
        self.single_action_space = Discrete(len(one.actions))
        self.observation_space = batch_space(self.single_observation_space, num_envs)
        self.action_space = batch_space(self.single_action_space, num_envs)
        self._shape = shape
        # Never written to: the newest are in the hands of the caller.
        self._observations: Observations = self._collect([])

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Observations, dict[str, Any]]:
        """Start an episode in every environment; without a seed it is the next one of each."""
        if seed is None and self._runners[0].episode < 0:
            seed = int(np.random.SeedSequence().generate_state(1)[0])
        firsts = []
        for runner in self._runners:
            if seed is not None:
                runner.seed, runner.episode = seed, -1
            firsts.append(runner.begin(episode=runner.episode + 1))
        self._observations = self._collect(firsts)
        return self._observations, {}

    def step(
        self, actions: NDArray[np.int64]
    ) -> tuple[
        Observations, NDArray[np.float64], NDArray[np.bool_], NDArray[np.bool_], dict[str, Any]
    ]:
        """Take one action in each environment."""
        rewards = np.zeros(self.num_envs, dtype=np.float64)
        terminated = np.zeros(self.num_envs, dtype=np.bool_)
        truncated = np.zeros(self.num_envs, dtype=np.bool_)
        following, lasts = [], {}
        for index, (runner, action) in enumerate(zip(self._runners, actions.tolist(), strict=True)):
            observation, rewards[index], over, cut_off = runner.step(action)
            if over or cut_off:
                terminated[index], truncated[index] = over, cut_off
                lasts[index] = observation
                observation = runner.begin(episode=runner.episode + 1)
            following.append(observation)
        info: dict[str, Any] = {}
        if lasts:
            final = np.zeros((self.num_envs, *self._shape), dtype=self._observations.dtype)
            for index, observation in lasts.items():
                final[index] = padded(observation, self._shape)
            info = {"final_obs": final, "_final_obs": terminated | truncated}
        self._observations = self._collect(following)
        return self._observations, rewards, terminated, truncated, info

    def state(self) -> State:
        """Return all that the future depends on, as copies; change nothing."""
        runners = self._runners
        actions, sizes = join_bytes([runner.recorded.tobytes() for runner in runners])
        return {
            IDENTITY: text_array(self.identity),
            "seeds": np.array([runner.seed for runner in runners], dtype=np.int64),
            "episodes": np.array([runner.episode for runner in runners], dtype=np.int64),
            "actions": actions,
            "actions_sizes": sizes,
            "returns": np.array([runner.episode_return for runner in runners], dtype=np.float64),
            "observations": self._observations.copy(),
        }

    def restore(self, state: Mapping[str, NDArray[Any]]) -> Observations:
        """Go on from a state, in freshly made environments, and return the observations.

        Raises:
            ValueError: the state is of another game, of other settings or another B; or the same
                seed and actions lead elsewhere now, so that nobody can go on.
        """
        like = pattern(self.num_envs, self._seen)
        check_state(state, identity=self.identity, like=like)
        parts = split_bytes(state["actions"], state["actions_sizes"])
        observations = []
        for index, (runner, part) in enumerate(zip(self._runners, parts, strict=True)):
            actions = array(ACTION)
            actions.frombytes(part)
            runner.seed = int(state["seeds"][index])
            if any(action >= len(runner.actions) for action in actions):
                raise ValueError(f"state.actions: has some that {self._game!r} does not have")
            seen, ended = runner.replay(episode=int(state["episodes"][index]), actions=actions)
            seen = padded(seen, self._shape)
            same = seen.tobytes() == state["observations"][index].tobytes()
            if ended or not same or runner.episode_return != state["returns"][index]:
                raise does_not_repeat(self._game, len(actions))
            observations.append(seen)
        self._observations = self._collect(observations)
        return self._observations

    def close_extras(self, **kwargs: Any) -> None:
        """Free what the environments hold."""
        # Gymnasium's destructor closes too, also what an interrupt left half constructed.
        for runner in self.__dict__.pop("_runners", []):
            runner.close()

    def _collect(self, observations: Sequence[Observations]) -> Observations:
        """Return observations as a new array [B, ...]; zeros where there are none."""
        dtype = self.single_observation_space.dtype
        whole = np.zeros((self.num_envs, *self._shape), dtype=dtype)
        for index, observation in enumerate(observations):
            whole[index] = padded(observation, self._shape)
        return whole
