"""The common part of tasks that play games: environments, episode accounts, snapshots.

Dimensions: P flattened shared parameters, T unroll, B environments, D numbers of an action.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from leap_rl.core.seeding import Purpose, derive_seed
from leap_rl.envs.normalized import STATISTICS, NormalizedVector
from leap_rl.envs.vector import EpisodeAccounting, EpisodeEnd, VectorStep
from leap_rl.learners.descent import DescentTask
from leap_rl.learners.game_learner import GameLearner
from leap_rl.learners.task import Observe, Progress, TaskSpec, TaskState
from leap_rl.meta.gradient_path import Point
from leap_rl.networks.actor_critic import ActorCritic
from leap_rl.networks.encoders import initialize
from leap_rl.networks.parameters import flatten_parameters, layout_of


class GameTask(DescentTask):
    """Plays one game in B environments, unroll by unroll."""

    def __init__(self, learner: GameLearner, spec: TaskSpec) -> None:
        super().__init__(**learner.descent_arguments())
        self._config = learner.task
        seed = derive_seed(spec.seed, Purpose.ENVIRONMENTS)
        self.envs = learner.make_envs(spec.game)(seed)
        self.env_processes = learner.env_processes
        suite, config = learner.suite, learner.task
        own = suite.own_vector(config, spec.game)  # which is stepped whole
        self._can_spread = learner.spreads_environments and own is None
        self._make_envs = partial(suite.make_envs, config, spec.game, seed=seed)
        self._accounting = EpisodeAccounting(self._config.num_envs)
        self._played = 0  # agent steps of the newest unroll

    def start(self, shared: Tensor) -> None:
        super().start(shared)
        self._observations = torch.from_numpy(self.envs.reset())

    def close(self) -> None:
        self.envs.close()

    def spread(self, processes: int) -> None:
        """Spread the environments over other processes, where they can be; to the same bits."""
        processes = min(processes, self._config.num_envs)
        if self._can_spread and processes != self.env_processes:
            self.envs.move_to(self._make_envs(processes=processes))
            self.env_processes = processes

    def observation_statistics(self) -> dict[str, Tensor]:
        """Return copies of what observations are normalised by, float64 [V] each; none if not."""
        if not isinstance(self.envs, NormalizedVector):
            return {}
        moments = self.envs.moments
        arrays = (moments.mean.copy(), moments.variance)
        return dict(zip(STATISTICS, map(torch.from_numpy, arrays), strict=True))

    def _play(
        self, act: Callable[[Tensor], Tensor], record: Callable[[VectorStep], None]
    ) -> tuple[list[EpisodeEnd], float]:
        """Act T times; return the episodes that ended, and the sum of raw rewards.

        What lies beyond the budget is in neither: where actions were ignored on the way, the last
        unroll is longer than what was left.
        """
        episodes: list[EpisodeEnd] = []
        rewards = 0.0
        agent_steps, budget = self._agent_steps, self.agent_steps_total
        for _ in range(self._config.unroll_length):
            step = self.envs.step(act(self._observations).numpy())
            counts = agent_steps < budget
            agent_steps += step.agent_steps
            ended = self._accounting.record(step, min(agent_steps, budget))
            if counts:
                episodes += ended
                rewards += float(step.rewards.sum(dtype=np.float64))
            record(step)
            self._observations = torch.from_numpy(step.observations)
        self._played = agent_steps - self._agent_steps
        return episodes, rewards

    def _own_state(self) -> TaskState:
        return {
            **{f"envs.{name}": array for name, array in self.envs.state().items()},
            "returns": self._accounting.returns.copy(),
            "lengths": self._accounting.lengths.copy(),
            "agent_steps": np.array(self._agent_steps),
        }

    def _restore_own(self, state: Mapping[str, NDArray[Any]]) -> None:
        self._observations = torch.from_numpy(self.envs.restore(with_prefix("envs.", state)))
        self._accounting.returns[:] = state["returns"]
        self._accounting.lengths[:] = state["lengths"]


class Experience(NamedTuple):
    """What an unroll saw and did."""

    observations: Tensor
    """[T, B, H, W, C] uint8, or [T, B, V]."""
    actions: Tensor
    """int64 [T, B]."""
    rewards: Tensor
    """float32 [T, B], clipped to the agent's bound."""
    ended: Tensor
    """bool [T, B]: the episode ended or was truncated with this agent step, or a life that counts
    as one ended. What came after a truncation is not here to bootstrap from."""
    next_observations: Tensor
    """[B, ...]: of what comes after the unroll."""


class PolicyTask(GameTask):
    """Learns one game of discrete actions in plain torch, by a loss of a subclass's own.

    Its network is the encoder with a policy and a value head, drawn with gains 0.01 and 1; an
    unroll is one batch, learned from once. All of that is part of snapshots; what a subclass adds,
    such as a schedule of rates, it adds to `_own_state` and `_restore_own`, or derives from
    `self._agent_steps`.

    torch's global random numbers, as of dropout, are of the task's seed and the update.

    Attributes:
        agent: The options.
        network: Observations [N, ...] to logits [N, A] and values [N].
    """

    def __init__(self, learner: GameLearner, spec: TaskSpec) -> None:
        super().__init__(learner, spec)
        self._seed = spec.seed
        self.agent = agent = learner.agent_config
        if agent.reward_clip == "auto":
            raise ValueError(
                f"agent.algorithm = {learner.name}: its options lack reward_clip, which "
                "every PolicyTask reads"
            )
        self._clip = agent.reward_clip
        self.network = ActorCritic(
            agent.encoder_spec,
            observation_shape=self.envs.observation_shape,
            num_logits=self.envs.num_actions,
        )
        heads, self._draws = (
            torch.Generator().manual_seed(derive_seed(spec.seed, purpose))
            for purpose in (Purpose.HEADS, Purpose.ACTIONS)
        )
        initialize(self.network.policy, heads, gain=0.01)
        initialize(self.network.value, heads, gain=1.0)
        self._size = layout_of(self.network.encoder).size
        self._flat = flatten_parameters(self.network)
        self._vector = nn.Parameter(self._flat.vector, requires_grad=False)
        self._optimizer = self.make_optimizer([self._vector])

    @abstractmethod
    def make_optimizer(self, parameters: list[nn.Parameter]) -> torch.optim.Optimizer:
        """Return what steps the parameters, which are one vector of all."""

    @abstractmethod
    def loss(self, batch: Experience) -> Tensor:
        """Return the loss of an unroll, 0-d; it is the f of the task's gradient path, too."""

    def advance(self, observe: Observe) -> Progress:
        batch, episodes, rewards = self._unroll()
        point = self._point_of(batch, with_grad=True)
        observe(point)
        self._vector.grad = self._flat.grad
        self._optimizer.step()
        self._count_update(lambda: self.loss(batch).detach())
        losses = {"total": float(point.loss)}
        return self._progress(losses, episodes=episodes, rewards=rewards)

    def end_point(self, *, with_grad: bool) -> Point:
        return self._point_of(self._unroll()[0], with_grad=with_grad)

    def named_parameters(self) -> dict[str, Tensor]:
        return self._flat.copies() | self.observation_statistics()

    def _unroll(self) -> tuple[Experience, list[EpisodeEnd], float]:
        seen, taken, earned, ended = [], [], [], []
        torch.manual_seed(derive_seed(self._seed, Purpose.DATA, self._updates))

        def act(observations: Tensor) -> Tensor:
            with torch.no_grad():
                logits, _ = self.network(observations)
            drawn = torch.multinomial(logits.softmax(-1), 1, generator=self._draws).squeeze(-1)
            seen.append(observations)
            taken.append(drawn)
            return drawn

        def record(step: VectorStep) -> None:
            earned.append(torch.from_numpy(step.rewards).clamp(-self._clip, self._clip))
            ended.append(torch.from_numpy(step.terminated | step.truncated | step.life_lost))

        episodes, rewards = self._play(act, record)
        batch = Experience(
            observations=torch.stack(seen),
            actions=torch.stack(taken),
            rewards=torch.stack(earned),
            ended=torch.stack(ended),
            next_observations=self._observations,
        )
        return batch, episodes, rewards

    def _point_of(self, batch: Experience, *, with_grad: bool) -> Point:
        self._flat.zero_grad()
        loss = self.loss(batch)
        if with_grad:
            torch.autograd.backward(loss)
        gradient = self._flat.grad[: self._size].clone() if with_grad else None
        # The optimizer writes into the vector; a path keeps the points that it has seen.
        return self._point(self._flat.vector[: self._size].clone(), loss.detach(), gradient)

    def _load_shared(self, shared: Tensor) -> None:
        self._flat.vector[: self._size].copy_(shared)

    def _own_state(self) -> TaskState:
        optimizer = self._optimizer.state[self._vector]
        return {
            **super()._own_state(),
            "vector": self._flat.vector.numpy().copy(),
            "draws": self._draws.get_state().numpy(),
            **{f"optimizer.{name}": part.numpy().copy() for name, part in optimizer.items()},
        }

    def _restore_own(self, state: Mapping[str, NDArray[Any]]) -> None:
        super()._restore_own(state)
        self._flat.vector.copy_(torch.from_numpy(state["vector"].copy()))
        self._draws.set_state(torch.from_numpy(state["draws"].copy()))
        self._optimizer.state[self._vector] = {
            name: torch.from_numpy(part.copy())
            for name, part in with_prefix("optimizer.", state).items()
        }


def with_prefix(prefix: str, state: Mapping[str, NDArray[Any]]) -> TaskState:
    """Return the entries whose names begin so, named by the rest."""
    return {
        name.removeprefix(prefix): array for name, array in state.items() if name.startswith(prefix)
    }
