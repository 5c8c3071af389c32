"""A game learned by our own agent: `A2CLearner` among its environments.

Dimensions: P flattened shared parameters, T unroll, B environments.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from numpy.typing import NDArray
from torch import Tensor

from leap_rl.core.seeding import Purpose, derive_seed
from leap_rl.envs.vector import EpisodeEnd, VectorStep
from leap_rl.learners.a2c.a2c import A2CLearner, Batch
from leap_rl.learners.a2c.distributions import Categorical, Gaussian
from leap_rl.learners.a2c.loss import A2CLoss
from leap_rl.learners.game_learner import GameLearner
from leap_rl.learners.game_task import GameTask, with_prefix
from leap_rl.learners.task import Observe, Progress, TaskSpec, TaskState
from leap_rl.meta.gradient_path import Point


class ActorCriticTask(GameTask):
    """Learns one game by A2C."""

    def __init__(self, learner: GameLearner, spec: TaskSpec) -> None:
        super().__init__(learner, spec)
        self.learner = A2CLearner(
            learner.agent_config,
            observation_shape=self.envs.observation_shape,
            policies=(Gaussian if self.envs.continuous else Categorical)(self.envs.num_actions),
            head_generator=_generator(spec.seed, Purpose.HEADS),
            action_generator=_generator(spec.seed, Purpose.ACTIONS),
        )

    @property
    def device(self) -> torch.device:
        return self.learner.flat.vector.device

    def advance(self, observe: Observe) -> Progress:
        loss, batch, episodes, rewards = self._unroll()
        observe(self._point_of(loss, self.learner.backward()))
        self.learner.step()
        self._count_update(
            lambda: self._path_loss(self.learner.evaluate(batch)), agent_steps=self._played
        )
        return self._progress(
            dict(zip(loss._fields, torch.stack(loss).tolist(), strict=True)),
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
        """Return copies of the parameters, named encoder.*, policy.* and value.*.

        With them are the statistics of the observations, where these are normalised.
        """
        return self.learner.flat.copies() | self.observation_statistics()

    def _load_shared(self, shared: Tensor) -> None:
        self.learner.load_shared(shared)

    def _own_state(self) -> TaskState:
        learner = {name: part.cpu().numpy() for name, part in self.learner.state_dict().items()}
        return super()._own_state() | {f"learner.{name}": part for name, part in learner.items()}

    def _restore_own(self, state: Mapping[str, NDArray[Any]]) -> None:
        self.learner.load_state_dict(
            {
                name: torch.from_numpy(array.copy())
                for name, array in with_prefix("learner.", state).items()
            }
        )
        super()._restore_own(state)

    def _unroll(self) -> tuple[A2CLoss, Batch, list[EpisodeEnd], float]:
        def record(step: VectorStep) -> None:
            self.learner.record(
                torch.from_numpy(step.rewards),
                terminated=torch.from_numpy(step.terminated | step.life_lost),
                truncated=torch.from_numpy(step.truncated),
                last_observations={
                    index: torch.from_numpy(observation)
                    for index, observation in step.last_observations.items()
                },
                ignored=None if step.ignored is None else torch.from_numpy(step.ignored),
            )

        episodes, rewards = self._play(self.learner.act, record)
        loss, batch = self.learner.losses(self._observations)
        return loss, batch, episodes, rewards

    def _point_of(self, loss: A2CLoss, gradient: Tensor | None) -> Point:
        learner = self.learner
        return self._point(
            learner.shared, self._path_loss(loss), gradient, step_length=learner.step_length
        )

    def _path_loss(self, loss: A2CLoss) -> Tensor:
        return loss.path_loss(self.learner.config.path_loss)


def _generator(task_seed: int, purpose: Purpose) -> torch.Generator:
    return torch.Generator().manual_seed(derive_seed(task_seed, purpose))
