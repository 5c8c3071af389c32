"""What an agent sees of its environments: `GameVector`, a typed face over a vector environment.

B environments are stepped together. Everything behind this face keeps to one rule, Gymnasium's
`AutoresetMode.SAME_STEP`: an episode that ends is followed by the next one's first observation
within the same step. No step is ever a mere reset, so each of the B transitions of each step is
one that the agent caused, and B times the number of steps is the number of agent steps.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from gymnasium.spaces import Box, Discrete
from gymnasium.vector import AutoresetMode, VectorEnv
from numpy.typing import NDArray

from leap_rl.envs.state import Observations, Restorable, State


@dataclass(frozen=True, kw_only=True, slots=True)
class VectorStep:
    """What one step of B environments gave.

    An episode that ends, ends in exactly one of two ways: it `terminated` (the game is over and
    nothing follows) or it was `truncated` (it was cut short, and a return has to be bootstrapped
    from its last observation). One that does both at once counts as terminated.
    """

    observations: Observations
    """[B, ...]: what to act on next; the new episode's first where one has just ended."""
    rewards: NDArray[np.float32]
    """[B]: the game's own rewards, neither clipped nor scaled."""
    terminated: NDArray[np.bool_]
    """[B]."""
    truncated: NDArray[np.bool_]
    """[B]: never true where `terminated` is."""
    last_observations: Mapping[int, Observations]
    """Environment → the last observation (a copy) of its episode, if truncated in this step."""
    life_lost: NDArray[np.bool_]
    """[B]: a life was lost and the episode goes on; true only where the settings let learning treat
    that as an end. Returns and lengths of episodes do not heed it."""


def environment_seeds(seed: int, num_envs: int) -> list[np.random.SeedSequence]:
    """Return a seed for each of B environments; environment i's does not depend on B."""
    return [np.random.SeedSequence(seed, spawn_key=(index,)) for index in range(num_envs)]


class GameVector:
    """B environments of one game, each going on to its next episode by itself.

    `reset` or `restore` is called once, then `step` as often as wanted. All arrays handed out are
    the caller's to keep: the environments must make new ones in each step, as those of this package
    do.

    Args:
        envs: in `AutoresetMode.SAME_STEP`, with observations [B, ...] of uint8 or float32 and
            discrete actions 0..A-1; it puts the last observations of episodes that ended into
            `info["final_obs"]`.
        seed: handed to `envs.reset`; the sole source of randomness.

    Raises:
        ValueError: `envs` is in another autoreset mode or has other spaces.
    """

    num_envs: int
    num_actions: int
    observation_shape: tuple[int, ...]
    """Of one observation: (height, width, channels) for a game of pixels, (length,) for others."""

    def __init__(self, envs: VectorEnv[Any, Any, Any], *, seed: int) -> None:
        mode = envs.metadata.get("autoreset_mode")
        if mode != AutoresetMode.SAME_STEP:
            # In NEXT_STEP the step after an episode's end ignores the action and gives reward 0:
            # a transition that never was, which would enter losses, returns and frame counts.
            raise ValueError(
                f"envs.metadata['autoreset_mode'] = {mode}: must be AutoresetMode.SAME_STEP; "
                "build the vector environment with autoreset_mode=AutoresetMode.SAME_STEP"
            )
        observations, actions = envs.single_observation_space, envs.single_action_space
        if not (isinstance(observations, Box) and observations.dtype in (np.uint8, np.float32)):
            raise ValueError(
                f"envs.single_observation_space = {observations}: must be a Box of uint8 or float32"
            )
        if not (isinstance(actions, Discrete) and actions.start == 0):
            raise ValueError(f"envs.single_action_space = {actions}: must be a Discrete from 0")
        self.num_envs = envs.num_envs
        self.num_actions = int(actions.n)
        self.observation_shape = observations.shape
        self._envs = envs
        self._seed = seed
        self._started = False

    def reset(self) -> Observations:
        """Start the first episode of each environment.

        Returns:
            The first observations, [B, ...].
        """
        assert not self._started, "environments are reset once: they then go on by themselves"
        self._started = True
        observations, _ = self._envs.reset(seed=self._seed)
        return np.asarray(observations)

    def step(self, actions: NDArray[np.int64]) -> VectorStep:
        """Take one action in each environment.

        Args:
            actions: integers [B] in 0..A-1.

        Raises:
            ValueError: an action that the game does not have.
        """
        assert self._started, "reset or restore comes before the first step"
        assert actions.shape == (self.num_envs,), f"actions of shape {actions.shape}"
        if actions.min() < 0 or actions.max() >= self.num_actions:
            # Not left to the environments: -1 would be the last action there.
            raise ValueError(f"actions = {actions}: must lie in 0..{self.num_actions - 1}")
        observations, rewards, terminated, truncated, info = self._envs.step(actions)
        truncated = truncated & ~terminated
        return VectorStep(
            observations=np.asarray(observations),
            rewards=np.asarray(rewards, dtype=np.float32),
            terminated=terminated,
            truncated=truncated,
            last_observations={
                int(index): np.array(info["final_obs"][index])
                for index in np.flatnonzero(truncated)
            },
            life_lost=info.get("life_lost", np.zeros(self.num_envs, dtype=np.bool_)),
        )

    def state(self) -> State:
        """Return all that the future depends on, as plain arrays; a pure read.

        Raises:
            TypeError: no snapshot of the environments can be taken.
        """
        assert self._started, "reset or restore comes before the first state"
        return self._restorable().state()

    def restore(self, state: Mapping[str, NDArray[Any]]) -> Observations:
        """Go on from a state, in place of `reset`: the same actions then give the same bits.

        Args:
            state: what `state` returned, of environments that were made with the same arguments
                (the seed aside).

        Returns:
            The observations to act on next, [B, ...].

        Raises:
            ValueError: the state is of another game, of other settings or another B.
            TypeError: no snapshot of the environments can be taken.
        """
        assert not self._started, "only freshly made environments can be restored"
        observations = self._restorable().restore(state)
        self._started = True
        return observations

    def _restorable(self) -> Restorable:
        if not isinstance(self._envs, Restorable):
            raise TypeError(f"{type(self._envs).__name__} has no state() and restore()")
        return self._envs

    def close(self) -> None:
        """Free what the environments hold."""
        self._envs.close()
