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

from leap_rl.core.seeding import Purpose, derive_seed
from leap_rl.envs.episodes import EpisodeAccounting, EpisodeEnd
from leap_rl.envs.vector import GameVector
from leap_rl.learners.a2c.a2c import A2CLearner
from leap_rl.learners.a2c.categorical import Categorical
from leap_rl.learners.a2c.gaussian import Gaussian
from leap_rl.learners.a2c.loss import A2CLoss
from leap_rl.learners.a2c.unroll import Batch
from leap_rl.learners.config import AgentConfig
from leap_rl.learners.descent import DescentTask
from leap_rl.learners.task import Observe, Progress, TaskSpec, TaskState
from leap_rl.meta.point import Point

if TYPE_CHECKING:
    from leap_rl.core.choices import LossDifference
from leap_rl.tasks.config import TaskConfig


class ActorCriticTask(DescentTask):
    """Learns one game by A2C; `make_envs` makes the game's B environments from a seed.

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
        super().__init__(
            updates=config.updates,
            agent_steps_per_update=config.agent_steps_per_update,
            loss_difference=loss_difference,
        )
        self._config = config
        self.envs = make_envs(derive_seed(spec.seed, Purpose.ENVIRONMENTS))
        self.learner = A2CLearner(
            agent,
            observation_shape=self.envs.observation_shape,
            policies=(Gaussian if self.envs.continuous else Categorical)(self.envs.num_actions),
            head_generator=_generator(spec.seed, Purpose.HEADS),
            action_generator=_generator(spec.seed, Purpose.ACTIONS),
        )
        self._accounting = EpisodeAccounting(config.num_envs)

    @property
    def device(self) -> torch.device:
        """Where the points of its gradient path lie."""
        return self.learner.flat.vector.device

    def start(self, shared: Tensor) -> None:
        """Copy the encoder, float32 [P], and begin the first episodes; the heads are drawn."""
        super().start(shared)
        self._observations = torch.from_numpy(self.envs.reset())

    def advance(self, observe: Observe) -> Progress:
        """Act for T agent steps in each environment, then update once."""
        loss, batch, episodes, rewards = self._unroll()
        observe(self._point_of(loss, self.learner.backward()))
        self.learner.step()
        self._count_update(lambda: self._path_loss(self.learner.evaluate(batch)))
        return self._progress(
            {name: value.item() for name, value in loss._asdict().items()},
            episodes=episodes,
            rewards=rewards,
        )

    def end_point(self, *, with_grad: bool) -> Point:
        """Return the last point with one more batch's loss.

        Its agent steps lie outside the budget: what ends in them is in no metric.
        """
        loss, _, _, _ = self._unroll()
        return self._point_of(loss, self.learner.backward() if with_grad else None)

    def named_parameters(self) -> dict[str, Tensor]:
        """Return copies of the parameters, named encoder.*, policy.* and value.*."""
        return self.learner.flat.copies()

    def close(self) -> None:
        """Close the environments."""
        self.envs.close()

    def _load_shared(self, shared: Tensor) -> None:
        self.learner.load_shared(shared)

    def _own_state(self) -> TaskState:
        learner = {name: part.cpu().numpy() for name, part in self.learner.state_dict().items()}
        return {
            **{f"learner.{name}": array for name, array in learner.items()},
            **{f"envs.{name}": array for name, array in self.envs.state().items()},
            "returns": self._accounting.returns.copy(),
            "lengths": self._accounting.lengths.copy(),
            "agent_steps": np.array(self._updates * self._agent_steps_per_update),
        }

    def _restore_own(self, state: Mapping[str, NDArray[Any]]) -> None:
        learner = _with_prefix("learner.", state)
        self.learner.load_state_dict(
            {name: torch.from_numpy(array.copy()) for name, array in learner.items()}
        )
        observations = self.envs.restore(_with_prefix("envs.", state))
        self._observations = torch.from_numpy(observations)
        self._accounting.returns[:] = state["returns"]
        self._accounting.lengths[:] = state["lengths"]

    def _unroll(self) -> tuple[A2CLoss, Batch, list[EpisodeEnd], float]:
        """Act for T agent steps; returns the sum of their raw rewards last."""
        episodes: list[EpisodeEnd] = []
        rewards = 0.0
        agent_steps = self._updates * self._agent_steps_per_update
        for _ in range(self._config.unroll_length):
            actions = self.learner.act(self._observations)
            step = self.envs.step(actions.numpy())
            agent_steps += self._config.num_envs
            episodes += self._accounting.record(step, agent_steps)
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

    def _point_of(self, loss: A2CLoss, gradient: Tensor | None) -> Point:
        learner = self.learner
        return self._point(
            learner.shared, self._path_loss(loss), gradient, step_length=learner.step_length
        )

    def _path_loss(self, loss: A2CLoss) -> Tensor:
        return loss.path_loss(self.learner.config.path_loss)


def _with_prefix(prefix: str, state: Mapping[str, NDArray[Any]]) -> TaskState:
    return {
        name.removeprefix(prefix): array for name, array in state.items() if name.startswith(prefix)
    }


def _generator(task_seed: int, purpose: Purpose) -> torch.Generator:
    return torch.Generator().manual_seed(derive_seed(task_seed, purpose))
