"""Environments of several games in one vector: domain randomisation.

B: environments. G: games.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from leap_rl.core.seeding import Purpose, derive_seed
from leap_rl.envs.state import (
    IDENTITY,
    Actions,
    Observations,
    State,
    check_state,
    join_bytes,
    join_states,
    split_state,
    text_array,
)
from leap_rl.envs.vector import RestorableEnvs, Stepped

_IDENTITIES = "identities"
"""The key of the texts, one an environment, that say of which game its part of a state is."""


class _Part(NamedTuple):
    """The environments of one game."""

    game: int
    """Its number, 0..G-1."""
    places: slice
    """Where they are among the B."""
    envs: RestorableEnvs


class MixedEnvs(RestorableEnvs):
    """B environments dealt over G games: environment i plays game i mod G.

    A game's environments draw from a seed of the game's own. Which episodes environment i plays
    depends on neither B nor the slice that it lies in.
    """

    def __init__(
        self, games: Sequence[Callable[..., RestorableEnvs]], *, num_envs: int, first: int = 0
    ) -> None:
        """Make environments from number `first` on; each of `games` makes those of one game.

        ValueError: a game cannot be made. All must have the same observations and actions.
        """
        self._parts: list[_Part] = []
        for game, make in enumerate(games):
            place = (game - first) % len(games)
            if place < num_envs:  # a slice may be shorter than the list of games
                places = slice(place, None, len(games))
                count = len(range(num_envs)[places])
                envs = make(num_envs=count, first=(first + place) // len(games))
                self._parts.append(_Part(game, places, envs))
        one = self._parts[0].envs
        for _, _, envs in self._parts:
            assert envs.single_action_space == one.single_action_space, envs.single_action_space
        space = one.single_observation_space
        super().__init__(num_envs, space, one.num_actions, continuous=one.continuous)
        self._shape, self._dtype = (num_envs, *space.shape), space.dtype

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Observations, dict[str, Any]]:
        observations = self._observations()
        for game, places, envs in self._parts:
            own = None if seed is None else derive_seed(seed, Purpose.ENVIRONMENTS, game)
            observations[places], _ = envs.reset(seed=own)
        return observations, {}

    def step(self, actions: Actions) -> Stepped:
        observations, rewards = self._observations(), np.zeros(self.num_envs)
        terminated, truncated, life_lost = np.zeros((3, self.num_envs), dtype=np.bool_)
        info: dict[str, Any] = {"life_lost": life_lost}
        for _, places, envs in self._parts:
            # Compiled games take arrays whose elements lie side by side.
            stepped = envs.step(np.ascontiguousarray(actions[places]))
            observations[places], rewards[places], terminated[places], truncated[places] = stepped[
                :4
            ]
            told = stepped[4]
            life_lost[places] = told.get("life_lost", False)
            if "final_obs" in told:
                info.setdefault("final_obs", self._observations())[places] = told["final_obs"]
        if "final_obs" in info:
            info["_final_obs"] = terminated | truncated
        return observations, rewards, terminated, truncated, info

    def state(self) -> State:
        """Return the parts' states in the order of the environments, each with its identity."""
        each: list[State] = [{} for _ in range(self.num_envs)]
        for _, places, envs in self._parts:
            each[places] = split_state(envs.state(), [1] * envs.num_envs)
        identities, sizes = join_bytes([bytes(one[IDENTITY]) for one in each])
        return {
            **join_states(each),
            IDENTITY: text_array("mixed"),
            _IDENTITIES: identities,
            f"{_IDENTITIES}_sizes": sizes,
        }

    def restore(self, state: Mapping[str, NDArray[Any]]) -> Observations:
        own = self.state()
        check_state(state, like=own)
        if bytes(state[_IDENTITIES]) != bytes(own[_IDENTITIES]):
            raise ValueError(
                f"state.{_IDENTITIES}: is of other games, or of games with other settings; restore "
                "into environments made alike"
            )
        each = split_state(state, [1] * self.num_envs)
        observations = self._observations()
        for _, places, envs in self._parts:
            part = join_states(each[places])
            identity = part.pop(_IDENTITIES)[: part.pop(f"{_IDENTITIES}_sizes")[0]]
            observations[places] = envs.restore({**part, IDENTITY: identity})
        return observations

    def close_extras(self, **kwargs: Any) -> None:
        # Gymnasium's destructor closes too, even half constructed environments.
        for part in self.__dict__.pop("_parts", []):
            part.envs.close()

    def _observations(self) -> Observations:
        observations: Observations = np.zeros(self._shape, self._dtype)
        return observations
