"""A game learned by RLlib's PPO, as a task: its own learner and environment runner here.

It starts no Ray, and so runs in any runtime. RLlib draws from the global random streams, which it
seeds; a task is a function of its seed and its start as long as nothing else draws from them.

P: flattened shared parameters.
"""

from __future__ import annotations

import logging
import warnings
from collections.abc import Mapping
from dataclasses import replace
from itertools import count
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from ray.rllib.algorithms.ppo import PPOConfig
from ray.rllib.core.rl_module.rl_module import RLModuleSpec
from ray.rllib.env.single_agent_env_runner import SingleAgentEnvRunner
from torch import Tensor

from leap_rl.core.seeding import Purpose, derive_seed
from leap_rl.envs.single import SingleEnv
from leap_rl.learners.game_learner import GameLearner
from leap_rl.learners.rllib.module import LeapEncoderModule
from leap_rl.learners.rllib.observed import ObservedPPOLearner
from leap_rl.learners.task import EpisodeEnd, Observe, Progress, TaskSpec, TaskState
from leap_rl.meta.gradient_path import Point

_SEEDS = 2**31
"""What numpy's global stream is seeded with lies below twice that."""


class PPOTask:
    """Learns one game by PPO: `advance` samples a batch and makes all its updates.

    A snapshot holds where the task started and how far it came; to restore it all of it is done
    again, and must come to the same parameters. Of `agent` the options count that PPO shares with
    our agent: encoder, initial weights, rates.
    """

    def __init__(self, learner: GameLearner, spec: TaskSpec) -> None:
        self._config = learner.task
        self._options = learner.agent_config.rllib
        assert self._options.minibatch_size != "auto"
        self._minibatch_size = self._options.minibatch_size
        logging.getLogger("ray").setLevel(logging.ERROR)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of RLlib's own deprecated calls
            made = _ppo(learner, spec)
            make_runner: Any = SingleAgentEnvRunner  # whose methods have no types
            self._runner = make_runner(config=made, worker_index=0)
            built = made.build_learner(
                env=self._runner.env.unwrapped, spaces=self._runner.get_spaces()
            )
        assert isinstance(built, ObservedPPOLearner)
        built.evaluates_again = learner.loss_difference == "same_batch"
        built.share(learner.agent_config.share)
        self._learner = built
        self._start = torch.zeros(0)
        self._iterations = 0
        self._agent_steps = 0
        self._returns: dict[str, tuple[float, int]] = {}  # of running episodes, by RLlib's id

    @property
    def done(self) -> bool:
        return self._agent_steps == self._config.agent_steps

    @property
    def agent_steps_total(self) -> int:
        return self._config.agent_steps

    @property
    def device(self) -> torch.device:
        return torch.device("cpu")

    def start(self, shared: Tensor) -> None:
        self._start = shared.clone()
        self._learner.load_theta(shared)
        self._show_runner()

    def advance(self, observe: Observe) -> Progress:
        learner = self._learner
        learner.observe = observe
        samples = self._sample()
        # RLlib steps all environments or none, and so plays up to B - 1 agent steps more, which
        # are not counted: curves of several agents have their points at the same agent steps.
        self._agent_steps += self._config.agent_steps_per_update
        episodes, rewards = self._account(samples)
        self._update(samples, num_epochs=self._options.num_epochs)
        self._show_runner()
        self._iterations += 1
        losses, learner.losses = learner.losses, []
        return Progress(
            updates=learner.updates,
            agent_steps=self._agent_steps,
            losses={"total": sum(losses) / len(losses)},
            episodes=episodes,
            rewards=rewards,
        )

    def end_point(self, *, with_grad: bool) -> Point:
        """Return the last point with the loss of one more batch's first minibatch."""
        self._learner.observe, self._learner.points = None, []
        self._update(self._sample(), num_epochs=1)
        point = self._learner.points[0]
        return point if with_grad else replace(point, grad=None)

    def state(self) -> TaskState:
        return {
            "start": self._start.numpy().copy(),
            "iterations": np.array(self._iterations),
            "parameters": self._parameters(),
        }

    def restore(self, state: Mapping[str, NDArray[Any]]) -> None:
        """Learn from the start again; ValueError if that leads to other parameters."""
        self.start(torch.from_numpy(np.array(state["start"])))
        for _ in range(int(state["iterations"])):
            self.advance(lambda point: None)
        if not np.array_equal(self._parameters(), state["parameters"]):
            raise ValueError(
                "state.parameters: the task came to others when it was learned again; its game, "
                "its options, RLlib or the machine are not the same"
            )

    def carry_over(self, state: Mapping[str, NDArray[Any]], shared: Tensor) -> None:
        raise ValueError(
            "agents of agent.algorithm = rllib:PPO cannot be carried over to another round"
        )

    def named_parameters(self) -> dict[str, Tensor]:
        return {name: part.clone() for name, part in self._learner.network.state_dict().items()}

    def close(self) -> None:
        self._runner.stop()

    def _sample(self) -> Any:
        return self._runner.sample(num_timesteps=self._config.agent_steps_per_update)

    def _update(self, samples: Any, *, num_epochs: int) -> None:
        self._learner.update(
            episodes=samples,
            timesteps={"num_env_steps_sampled_lifetime": self._agent_steps},
            num_epochs=num_epochs,
            minibatch_size=self._minibatch_size,
            shuffle_batch_per_epoch=True,
        )

    def _show_runner(self) -> None:
        state = self._learner.get_state(components="rl_module", inference_only=True)
        self._runner.set_state({"rl_module": state["rl_module"]})

    def _account(self, samples: Any) -> tuple[list[EpisodeEnd], float]:
        """Return the episodes that ended, as of the batch's end, and the sum of raw rewards.

        The sum is of as many agent steps as are counted, each at the mean of all that were played.
        """
        ended, total, played = [], 0.0, 0
        for sample in samples:
            played += len(sample)
            rewards = [info["raw_reward"] for info in sample.get_infos()[1:]]
            before, length = self._returns.pop(sample.id_, (0.0, 0))
            now = (before + sum(rewards), length + len(sample))
            total += sum(rewards)
            if sample.is_done:
                ended.append(EpisodeEnd(self._agent_steps, *now))
            else:
                self._returns[sample.id_] = now
        return ended, total * self._config.agent_steps_per_update / played

    def _parameters(self) -> NDArray[np.float32]:
        parts = [part.numpy().ravel() for part in self.named_parameters().values()]
        return np.concatenate(parts)


class _TaskEnv(SingleEnv):
    """One of a task's environments, made as RLlib makes one: with a mapping."""

    def __init__(self, config: Mapping[str, Any]) -> None:
        super().__init__(config["make"](), reward_clip=config["reward_clip"])


def _ppo(learner: GameLearner, spec: TaskSpec) -> Any:
    config, agent = learner.task, learner.agent_config
    own = agent.rllib
    clip = agent.max_grad_norm
    numbers = count()  # RLlib makes the environments one after the other
    make: Any = PPOConfig  # likewise
    return (
        make()
        .environment(
            _TaskEnv,
            env_config={
                "make": lambda: learner.suite.make_single(config, spec.game, number=next(numbers)),
                "reward_clip": agent.reward_clip,
            },
        )
        .env_runners(
            num_env_runners=0,
            num_envs_per_env_runner=config.num_envs,
            rollout_fragment_length=config.unroll_length,
        )
        .learners(num_learners=0)
        .training(
            learner_class=ObservedPPOLearner,
            lr=agent.lr,
            gamma=agent.gamma,
            lambda_=own.gae_lambda,
            clip_param=own.clip,
            vf_clip_param=own.value_clip,
            vf_loss_coeff=agent.value_coefficient,
            entropy_coeff=agent.entropy_coefficient,
            grad_clip=None if clip == float("inf") else clip,
            train_batch_size_per_learner=config.agent_steps_per_update,
            minibatch_size=own.minibatch_size,
            num_epochs=own.num_epochs,
        )
        .rl_module(
            rl_module_spec=RLModuleSpec(
                module_class=LeapEncoderModule,
                model_config={
                    "encoder": agent.encoder,
                    "encoder_arguments": agent.encoder_arguments,
                    "encoder_sha256": agent.encoder_sha256,
                    "initial_weights": agent.initial_weights,
                    "value_gain": agent.value_gain,
                },
            )
        )
        .debugging(seed=derive_seed(spec.seed, Purpose.DATA) % _SEEDS, log_level="ERROR")
    )
