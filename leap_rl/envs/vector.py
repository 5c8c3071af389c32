"""`GameVector`, a typed interface to a vector environment, and returns and lengths of its episodes.

B environments are stepped together, by Gymnasium's `AutoresetMode.SAME_STEP`: an episode that ends
is followed by the next one's first observation within the same step. No step only resets, so B
times the number of steps is the number of agent steps. A user's own vector may be in
`AutoresetMode.NEXT_STEP`, where the step after an end ignores the action and returns the next
episode's first observation; `VectorStep.ignored` marks those.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from gymnasium.spaces import Box, Discrete
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space
from numpy.typing import NDArray

from leap_rl.core.kernels import any_of, kernel
from leap_rl.envs.state import Actions, Observations, State

Stepped: TypeAlias = tuple[
    Observations, NDArray[np.float64], NDArray[np.bool_], NDArray[np.bool_], dict[str, Any]
]
"""Observations, rewards, terminated, truncated and info of B environments."""


class RestorableEnvs(VectorEnv[Observations, Actions, NDArray[Any]]):
    """B environments in `AutoresetMode.SAME_STEP` of which snapshots can be taken.

    The arrays that `reset`, `step` and `restore` return are new each time. A last observation goes
    into `info["final_obs"]`; `info["life_lost"]` is optional, and so is `info["ignored"]`, see
    `VectorStep`. `own_vector` says what else a user's own vector may lack.

    An observation is uint8 or float32. An action is one of 0..A-1 or, if `continuous`, D numbers in
    [-1, 1]; `num_actions` is A, or D.
    """

    metadata: dict[str, Any] = {"autoreset_mode": AutoresetMode.SAME_STEP}  # noqa: RUF012
    single_observation_space: Box
    single_action_space: Discrete[np.int64] | Box
    num_actions: int
    continuous: bool

    def __init__(
        self,
        num_envs: int,
        observation_space: Box,
        num_actions: int,
        *,
        continuous: bool = False,
    ) -> None:
        self.num_envs = num_envs
        self.num_actions, self.continuous = num_actions, continuous
        self.single_observation_space = observation_space
        bounds = Box(-1.0, 1.0, (num_actions,), np.float32)
        self.single_action_space = bounds if continuous else Discrete(num_actions)
        self.observation_space = batch_space(self.single_observation_space, num_envs)
        self.action_space = batch_space(self.single_action_space, num_envs)

    def state(self) -> State:
        """Return all that the future depends on, as copies; change nothing."""
        raise NotImplementedError

    def restore(self, state: Mapping[str, NDArray[Any]]) -> Observations:
        """Resume from a state; ValueError if it is of another game, other settings or another B."""
        raise NotImplementedError


@dataclass(frozen=True, kw_only=True, slots=True)
class VectorStep:
    """The result of one step of B environments.

    An episode ends in exactly one of two ways: it `terminated` (the game is over) or it was
    `truncated` (a return has to be bootstrapped from its last observation). One that does both at
    once counts as terminated.
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
    """[B]: a life was lost and the episode continues; only where learning treats that as an end.
    Returns and lengths of episodes ignore it."""
    ignored: NDArray[np.bool_] | None = None
    """[B]: the action was ignored, as the episode had ended in the step before and this one only
    began the next; its reward is 0. It is no agent step. None of environments where none is."""

    @property
    def agent_steps(self) -> int:
        """The number of actions that were taken, at most B."""
        ignored = 0 if self.ignored is None else int(self.ignored.sum())
        return len(self.rewards) - ignored


def environment_seeds(seed: int, num_envs: int) -> list[np.random.SeedSequence]:
    """Return a seed for each of B environments; environment i's does not depend on B."""
    return [np.random.SeedSequence(seed, spawn_key=(index,)) for index in range(num_envs)]


class GameVector:
    """B environments of one game; `seed` is the sole source of randomness.

    `reset` or `restore` is called once, then `step` as often as wanted. All arrays handed out are
    the caller's to keep. `num_actions` is A of discrete actions; of continuous ones D, the numbers
    that one has. `observation_shape` is (height, width, channels) of pixels, else (length,).
    """

    def __init__(self, envs: RestorableEnvs, *, seed: int) -> None:
        self.num_envs = envs.num_envs
        self.num_actions, self.continuous = envs.num_actions, envs.continuous
        self.observation_shape = envs.single_observation_space.shape
        self._envs = envs
        self._seed = seed
        self._no_life_lost = np.zeros(self.num_envs, dtype=np.bool_)
        self._no_life_lost.flags.writeable = False

    def reset(self) -> Observations:
        """Start the first episode of each environment; return the observations, [B, ...]."""
        observations, _ = self._envs.reset(seed=self._seed)
        return observations

    def step(self, actions: Actions) -> VectorStep:
        """Take one action in each environment: integers [B] in 0..A-1, or finite floats [B, D].

        Floats are clipped to [-1, 1]. ValueError: an action that the game does not have.
        """
        shape = (self.num_envs, self.num_actions) if self.continuous else (self.num_envs,)
        assert actions.shape == shape, f"actions of shape {actions.shape}"
        if self.continuous:
            if not np.isfinite(actions).all():
                raise ValueError(f"actions = {actions}: must be finite")
        elif not _lie_below(actions, self.num_actions):
            # Not left to the environments: -1 would be the last action there.
            raise ValueError(f"actions = {actions}: must lie in 0..{self.num_actions - 1}")
        observations, rewards, terminated, truncated, info = self._envs.step(actions)
        last_observations = {}
        if any_of(truncated):
            truncated = truncated & ~terminated
            last_observations = {
                int(index): np.array(info["final_obs"][index])
                for index in np.flatnonzero(truncated)
            }
        return VectorStep(
            observations=observations,
            rewards=np.asarray(rewards, dtype=np.float32),
            terminated=terminated,
            truncated=truncated,
            last_observations=last_observations,
            life_lost=info.get("life_lost", self._no_life_lost),
            ignored=info.get("ignored"),
        )

    def state(self) -> State:
        return self._envs.state()

    def restore(self, state: Mapping[str, NDArray[Any]]) -> Observations:
        """Resume from a state in place of `reset`; the same actions then give the same bits."""
        return self._envs.restore(state)

    def move_to(self, other: GameVector) -> None:
        """Continue in the environments of a vector made alike, to the same bits; close the own."""
        other.restore(self._envs.state())
        self._envs.close()
        self._envs = other._envs

    def close(self) -> None:
        self._envs.close()


class EpisodeEnd(NamedTuple):
    """An episode that ended."""

    agent_steps: int
    """Agent steps of the whole task, over all its environments, when it ended."""
    episode_return: float
    """Sum of the raw rewards."""
    length: int
    """Agent steps that the episode took."""


class EpisodeAccounting:
    """Returns and lengths [B] of the running episodes of B environments, summed in float64.

    Counted from the steps that the agent learns from: in `AutoresetMode.SAME_STEP` Gymnasium's own
    statistics (1.2.2) miss a step of each episode but the first.
    """

    def __init__(self, num_envs: int) -> None:
        self.returns = np.zeros(num_envs, dtype=np.float64)
        self.lengths = np.zeros(num_envs, dtype=np.int64)

    def record(self, step: VectorStep, agent_steps: int) -> list[EpisodeEnd]:
        """Add one step of all B environments; return the episodes that ended, in their order.

        `agent_steps` is the task's count, this step's included.
        """
        over = step.terminated | step.truncated
        any_over = _count(self.returns, self.lengths, step.rewards, over)
        if step.ignored is not None:
            self.lengths -= step.ignored
        if not any_over:
            return []
        ended = np.flatnonzero(over)
        episodes = [
            EpisodeEnd(agent_steps, float(self.returns[index]), int(self.lengths[index]))
            for index in ended
        ]
        self.returns[ended] = 0.0
        self.lengths[ended] = 0
        return episodes


@kernel
def _count(returns: Any, lengths: Any, rewards: Any, over: Any) -> bool:
    """Add a step to returns and lengths [B]; return whether any episode is over."""
    found = False
    for b in range(len(returns)):
        returns[b] += rewards[b]
        lengths[b] += 1
        found |= over[b]
    return found


@kernel
def _lie_below(numbers: Any, bound: int) -> bool:
    """Return whether whole numbers lie in 0..bound-1."""
    inside = True
    for number in numbers:
        inside &= 0 <= number < bound
    return inside
