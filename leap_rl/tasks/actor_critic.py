"""A game learned by an actor-critic agent: the agent of ``rl`` among the environments of ``envs``.

Dimensions: P flattened shared parameters, T unroll, B environments.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from leap_rl.envs.episodes import Episode, EpisodeAccounting
from leap_rl.envs.vector import GameVector
from leap_rl.meta.point import Point
from leap_rl.rl.a2c import A2CLearner, Batch
from leap_rl.rl.config import AgentConfig
from leap_rl.rl.loss import A2CLoss
from leap_rl.seeding import Purpose, derive_seed
from leap_rl.tasks.task import (
    EpisodeEnd,
    Observe,
    Progress,
    TaskSpec,
    TaskState,
    restore_loss,
    save_loss,
)

if TYPE_CHECKING:
    from leap_rl.tasks.config import LossDifference, TaskConfig


class ActorCriticTask:
    """Learns one game by A2C.

    Args:
        spec: The game, and the seed that heads, environments and actions are drawn from.
        make_envs: Makes the game's B environments from a seed.
        config: The budget and its division.
        agent: The agent's settings.
        loss_difference: Whether to compute each batch's loss after the update too.

    Attributes:
        envs: The B environments.
        learner: The agent.
    """

    def __init__(
        self,
        spec: TaskSpec,
        *,
        make_envs: Callable[[int], GameVector],
        config: TaskConfig,
        agent: AgentConfig,
        loss_difference: LossDifference,
    ) -> None:
        self._config = config
        self._evaluates_again = loss_difference == "same_batch"
        self.envs = make_envs(derive_seed(spec.seed, Purpose.ENVIRONMENTS))
        self.learner = A2CLearner(
            agent,
            observation_shape=self.envs.observation_shape,
            num_actions=self.envs.num_actions,
            head_generator=_generator(spec.seed, Purpose.HEADS),
            action_generator=_generator(spec.seed, Purpose.ACTIONS),
        )
        self._accounting = EpisodeAccounting(config.num_envs)
        self._updates = 0
        self._agent_steps = 0
        self._previous_batch_loss: Tensor | None = None

    @property
    def done(self) -> bool:
        """Whether the budget is used up."""
        return self._updates >= self._config.updates

    @property
    def agent_steps_total(self) -> int:
        """The budget."""
        return self._config.agent_steps

    @property
    def device(self) -> torch.device:
        """Where the points of its gradient path lie."""
        return self.learner.flat.vector.device

    def start(self, shared: Tensor) -> None:
        """Copy the encoder, float32 [P], and begin the first episodes; the heads are drawn."""
        self.learner.load_shared(shared)
        self._observations = torch.from_numpy(self.envs.reset())

    def advance(self, observe: Observe) -> Progress:
        """Act for T agent steps in each environment, then update once."""
        loss, batch, episodes, rewards = self._unroll()
        gradient = self.learner.backward()
        observe(
            Point(
                theta=self.learner.shared,
                loss=self._path_loss(loss),
                grad=gradient,
                previous_batch_loss=self._previous_batch_loss,
                step_length=self.learner.step_length,
            )
        )
        self.learner.step()
        self._updates += 1
        if self._evaluates_again:
            self._previous_batch_loss = self._path_loss(self.learner.evaluate(batch))
        return Progress(
            updates=self._updates,
            agent_steps=self._agent_steps,
            losses={name: value.item() for name, value in loss._asdict().items()},
            episodes=[
                EpisodeEnd(episode.agent_steps, episode.raw_return, episode.length)
                for episode in episodes
            ],
            rewards=rewards,
        )

    def end_point(self, *, with_grad: bool) -> Point:
        """Return the last point with one more batch's loss.

        Its agent steps lie outside the budget: what ends in them is in no figure.
        """
        loss, _, _, _ = self._unroll()
        return Point(
            theta=self.learner.shared,
            loss=self._path_loss(loss),
            grad=self.learner.backward() if with_grad else None,
            previous_batch_loss=self._previous_batch_loss,
            step_length=self.learner.step_length,
        )

    def state(self) -> TaskState:
        """Return agent, environments, running episodes and counts."""
        learner = {name: part.cpu().numpy() for name, part in self.learner.state_dict().items()}
        return {
            **{f"learner.{name}": array for name, array in learner.items()},
            **{f"envs.{name}": array for name, array in self.envs.state().items()},
            "returns": self._accounting.returns.copy(),
            "lengths": self._accounting.lengths.copy(),
            "updates": np.array(self._updates),
            "agent_steps": np.array(self._agent_steps),
            **save_loss(self._previous_batch_loss),
        }

    def restore(self, state: Mapping[str, NDArray[Any]]) -> None:
        """Go on from a state.

        Raises:
            ValueError: The state is of another game, other settings or another network.
        """
        learner = _with_prefix("learner.", state)
        self.learner.load_state_dict(
            {name: torch.from_numpy(array.copy()) for name, array in learner.items()}
        )
        observations = self.envs.restore(_with_prefix("envs.", state))
        self._observations = torch.from_numpy(observations)
        self._accounting.returns[:] = state["returns"]
        self._accounting.lengths[:] = state["lengths"]
        self._updates = int(state["updates"])
        self._agent_steps = int(state["agent_steps"])
        self._previous_batch_loss = restore_loss(state)

    def go_on(self, state: Mapping[str, NDArray[Any]], shared: Tensor) -> None:
        """Begin a round from ``shared``, float32 [P], with the agent of an earlier one.

        An episode that is under way goes on, and counts in the round that it ends in.

        Raises:
            ValueError: The state is of another game, other settings or another network.
        """
        self.restore(state)
        self.learner.load_shared(shared)
        self._updates = 0
        self._agent_steps = 0
        self._previous_batch_loss = None

    def named_parameters(self) -> dict[str, Tensor]:
        """Return copies of the parameters, named encoder.*, policy.* and value.*."""
        return self.learner.parameters_named()

    def close(self) -> None:
        """Close the environments."""
        self.envs.close()

    def _unroll(self) -> tuple[A2CLoss, Batch, list[Episode], float]:
        """Act for T agent steps; returns the sum of their raw rewards last."""
        episodes: list[Episode] = []
        rewards = 0.0
        for _ in range(self._config.unroll_length):
            actions = self.learner.act(self._observations)
            step = self.envs.step(actions.numpy())
            self._agent_steps += self._config.num_envs
            episodes += self._accounting.record(step, self._agent_steps)
            rewards += float(step.rewards.sum(dtype=np.float64))
            self.learner.record(
                torch.from_numpy(step.rewards),
                terminated=torch.from_numpy(step.terminated | step.life_lost),
                truncated=torch.from_numpy(step.truncated),
                last_observations={
                    index: torch.from_numpy(observation)
                    for index, observation in step.last_observations.items()
                },
            )
            self._observations = torch.from_numpy(step.observations)
        loss, batch = self.learner.losses(self._observations)
        return loss, batch, episodes, rewards

    def _path_loss(self, loss: A2CLoss) -> Tensor:
        return loss.path_loss(self.learner.config.path_loss)


def _with_prefix(prefix: str, state: Mapping[str, NDArray[Any]]) -> TaskState:
    return {
        name.removeprefix(prefix): array for name, array in state.items() if name.startswith(prefix)
    }


def _generator(task_seed: int, purpose: Purpose) -> torch.Generator:
    return torch.Generator().manual_seed(derive_seed(task_seed, purpose))
