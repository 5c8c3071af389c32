"""Another algorithm to meta-train over: REINFORCE (Williams 1992), in one file.

Installed, its family is one more `task.kind`, on Gymnasium environments:

    pip install --no-deps --no-build-isolation ./examples/reinforce
    leap-rl train --config minatar --task.kind reinforce --task.options '{"rate": 0.001}'

T: agent steps of an unroll. B: environments. P: shared parameters.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import torch
from leap_rl.core.choices import LossDifference
from leap_rl.learners.learner import Learner
from torch import Tensor, nn

from leap_rl.core.seeding import Purpose, derive_seed
from leap_rl.envs.episodes import EpisodeAccounting
from leap_rl.envs.vector import GameVector
from leap_rl.learners.a2c.categorical import Categorical
from leap_rl.learners.config import AgentConfig
from leap_rl.learners.descent import DescentTask
from leap_rl.learners.task import EpisodeEnd, Observe, Progress, Task, TaskSpec, TaskState
from leap_rl.meta.point import Point
from leap_rl.networks.actor_critic import ActorCritic
from leap_rl.networks.encoders import initialize
from leap_rl.networks.parameters import flatten_parameters, layout_of
from leap_rl.tasks.config import TaskConfig
from leap_rl.tasks.gymnasium import GymnasiumFamily


class ReinforceFamily(GymnasiumFamily):
    """Gymnasium environments, learned by REINFORCE."""

    kind = "reinforce"
    options = ("agent_steps", "num_envs", "unroll_length", "gymnasium", "options")
    ignored_agent_options = (
        *("reward_clip", "share", "value_coefficient", "value_gain", "lr", "max_grad_norm"),
        *("rmsprop_alpha", "rmsprop_eps", "rmsprop_start", "path_loss", "precision", "device"),
    )

    def check(self, task: TaskConfig, agent: AgentConfig, env_processes: int) -> None:
        """Refuse options that it does not have."""
        if unknown := task.options.keys() - {"rate"}:
            raise ValueError(f"task.options = {sorted(unknown)}: reinforce has rate alone")

    def make(self, tasks: Learner, spec: TaskSpec) -> Task:
        """Make the task of an agent that learns the game."""
        return ReinforceTask(
            spec,
            make_envs=self.make_envs(tasks, spec.game),
            config=tasks.task,
            agent=self.player(tasks),
            loss_difference=tasks.loss_difference,
        )


class ReinforceTask(DescentTask):
    """Learns one game: unrolls of T agent steps, their returns less their mean, a step of Adam."""

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
        self._config, self._agent = config, agent
        self._envs = make_envs(derive_seed(spec.seed, Purpose.ENVIRONMENTS))
        if self._envs.continuous:
            raise ValueError(f"task.games: {spec.game!r} has continuous actions; PPO learns those")
        self._network = ActorCritic(
            agent.encoder_spec,
            observation_shape=self._envs.observation_shape,
            num_logits=self._envs.num_actions,
        )
        heads, self._draws = (
            torch.Generator().manual_seed(derive_seed(spec.seed, purpose))
            for purpose in (Purpose.HEADS, Purpose.ACTIONS)
        )
        initialize(self._network.policy, heads, gain=0.01)
        self._size = layout_of(self._network.encoder).size
        self._flat = flatten_parameters(self._network)
        self._vector = nn.Parameter(self._flat.vector, requires_grad=False)
        self._adam = torch.optim.Adam([self._vector], lr=config.options.get("rate", 1e-3))
        self._accounting = EpisodeAccounting(config.num_envs)

    def start(self, shared: Tensor) -> None:
        """Copy the encoder, float32 [P], and begin the first episodes."""
        super().start(shared)
        self._observations = torch.from_numpy(self._envs.reset())

    def advance(self, observe: Observe) -> Progress:
        """Act for T agent steps in each environment, then update once."""
        batch, episodes, rewards = self._unroll()
        observe(self._point_of(batch, with_grad=True))
        self._vector.grad = self._flat.grad
        self._adam.step()
        self._count_update(lambda: self._loss(batch).detach())
        return self._progress({"total": float(self._last_loss)}, episodes=episodes, rewards=rewards)

    def end_point(self, *, with_grad: bool) -> Point:
        """Return the last point with one more batch's loss."""
        return self._point_of(self._unroll()[0], with_grad=with_grad)

    def named_parameters(self) -> dict[str, Tensor]:
        """Return copies of the parameters."""
        return self._flat.copies()

    def close(self) -> None:
        """Close the environments."""
        self._envs.close()

    def _point_of(self, batch: tuple[Tensor, ...], *, with_grad: bool) -> Point:
        self._flat.zero_grad()
        loss = self._loss(batch)
        if with_grad:
            loss.backward()
        self._last_loss = loss.detach()
        gradient = self._flat.grad[: self._size].clone() if with_grad else None
        # Adam writes into the vector; a path keeps the points that it has seen.
        return self._point(self._flat.vector[: self._size].clone(), self._last_loss, gradient)

    def _unroll(self) -> tuple[tuple[Tensor, ...], list[EpisodeEnd], float]:
        """Return observations, actions and returns [T, B, ...], what ended, and the rewards."""
        seen, taken, rewards, going = [], [], [], []
        ended: list[EpisodeEnd] = []
        agent_steps = self._updates * self._agent_steps_per_update
        for _ in range(self._config.unroll_length):
            with torch.no_grad():
                logits, _ = self._network(self._observations)
            actions = Categorical(self._envs.num_actions).sample(logits, self._draws)
            step = self._envs.step(actions.numpy())
            agent_steps += self._config.num_envs
            ended += self._accounting.record(step, agent_steps)
            seen.append(self._observations)
            taken.append(actions)
            rewards.append(torch.from_numpy(step.rewards).float())
            going.append(torch.from_numpy(~(step.terminated | step.truncated)).float())
            self._observations = torch.from_numpy(step.observations)
        returns, following = [], torch.zeros(self._config.num_envs)
        for reward, continues in zip(reversed(rewards), reversed(going), strict=True):
            following = reward + self._agent.gamma * continues * following
            returns.insert(0, following)
        batch = (torch.stack(seen), torch.stack(taken), torch.stack(returns))
        return batch, ended, float(torch.stack(rewards).double().sum())

    def _loss(self, batch: tuple[Tensor, ...]) -> Tensor:
        observations, actions, returns = (each.flatten(0, 1) for each in batch)
        policy = torch.distributions.Categorical(logits=self._network(observations)[0])
        advantages = returns - returns.mean()
        entropy = self._agent.entropy_coefficient * policy.entropy().mean()
        loss: Tensor = -(advantages * policy.log_prob(actions)).mean() - entropy
        return loss

    def _load_shared(self, shared: Tensor) -> None:
        self._flat.vector[: self._size].copy_(shared)

    def _own_state(self) -> TaskState:
        adam = self._adam.state[self._vector]
        return {
            "vector": self._flat.vector.numpy().copy(),
            "draws": self._draws.get_state().numpy(),
            "returns": self._accounting.returns.copy(),
            "lengths": self._accounting.lengths.copy(),
            **{f"adam.{name}": part.numpy().copy() for name, part in adam.items()},
            **{f"envs.{name}": array for name, array in self._envs.state().items()},
        }

    def _restore_own(self, state: Mapping[str, np.ndarray[Any, Any]]) -> None:
        self._flat.vector.copy_(torch.from_numpy(state["vector"].copy()))
        self._draws.set_state(torch.from_numpy(state["draws"].copy()))
        self._accounting.returns[:] = state["returns"]
        self._accounting.lengths[:] = state["lengths"]
        self._adam.state[self._vector] = {
            name.removeprefix("adam."): torch.from_numpy(part.copy())
            for name, part in state.items()
            if name.startswith("adam.")
        }
        observations = self._envs.restore(
            {
                name.removeprefix("envs."): part
                for name, part in state.items()
                if name.startswith("envs.")
            }
        )
        self._observations = torch.from_numpy(observations)
