"""A game learned by stable-baselines3, as a task: one call of `learn`, watched on its way.

P: flattened shared parameters. B: environments.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count
from typing import Any

import numpy as np
import torch
from gymnasium.spaces import Box
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.logger import Logger
from stable_baselines3.common.vec_env import DummyVecEnv, VecNormalize
from torch import Tensor

from leap_rl.core.errors import RunFailedError
from leap_rl.core.lines import in_a_line
from leap_rl.envs.normalized import STATISTICS
from leap_rl.envs.single import SingleEnv
from leap_rl.learners.game_learner import GameLearner
from leap_rl.learners.sb3.model import (
    load_shared,
    make_model,
    optimizers_of,
    shared_parameters,
)
from leap_rl.learners.task import EpisodeEnd, Observe, Progress, TaskSpec
from leap_rl.learners.watched import WatchedTask
from leap_rl.meta.gradient_path import NonFiniteError
from leap_rl.meta.watch import Watch
from leap_rl.networks.parameters import layout_of_tensors


class SB3Task(WatchedTask):
    """Learns one game: `advance` lets the library play and learn to where it would play again."""

    def __init__(self, learner: GameLearner, spec: TaskSpec) -> None:
        super().__init__(learner, spec)
        self._learner = learner
        config = learner.task
        numbers = count()  # the environments are made one after the other

        def make() -> SingleEnv:
            return SingleEnv(learner.suite.make_single(config, spec.game, number=next(numbers)))

        self._envs: Any = DummyVecEnv([make] * config.num_envs)
        if learner.agent.normalize_observations:
            self._envs = VecNormalize(self._envs, norm_reward=False)
            # It keeps a space of bytes, as which its floats would be stored.
            most, shape = self._envs.clip_obs, self._envs.observation_space.shape
            self._envs.observation_space = Box(-most, most, shape, np.float32)
        self._model = make_model(learner, self._envs, seed=self._seed)
        self._model.set_logger(Logger(folder=None, output_formats=[]))
        self._shared = shared_parameters(learner, self._model.policy)
        self._layout = layout_of_tensors(self._shared)
        self._report = _Report(config.num_envs)
        self._report.pause, self._report.check = self._learning.pause, self._learning.check

    def start(self, shared: Tensor) -> None:
        load_shared(self._learner, self._model.policy, self._layout.named(shared))

    def advance(self, observe: Observe) -> Progress:
        """Let the library play a batch, and learn from it.

        Raises:
            NonFiniteError: What it steps by is NaN or infinite.
            RunFailedError: The library raised something else; one line.
        """
        self._observe = observe
        try:
            self._learning.resume()
        except (NonFiniteError, RunFailedError):
            raise
        except Exception as error:
            said = in_a_line(error)[:300]
            if not all(bool(each.isfinite().all()) for each in self._model.policy.parameters()):
                raise NonFiniteError(f"{self._name}: {said}") from error
            raise RunFailedError(f"agent.algorithm = {self._name}: raises {said}") from error
        episodes, rewards = self._report.taken()
        return Progress(
            updates=self._updates,
            agent_steps=self._model.num_timesteps,
            losses={"total": self._mean_loss()},
            episodes=episodes,
            rewards=rewards,
        )

    def named_parameters(self) -> dict[str, Tensor]:
        """Return the policy's, by the library's names, and what observations are normalised by."""
        found = {name: each.clone() for name, each in self._model.policy.state_dict().items()}
        if isinstance(self._envs, VecNormalize):
            statistics = self._envs.obs_rms
            arrays = (statistics.mean, statistics.var)
            found |= {
                name: torch.from_numpy(np.array(array))
                for name, array in zip(STATISTICS, arrays, strict=True)
            }
        return found

    def close(self) -> None:
        super().close()
        self._envs.close()

    def _learn(self) -> None:
        """Learn the whole task; in its own thread."""
        model = self._model
        model.set_random_seed(self._seed)  # whatever was drawn since the model was made
        optimizers = optimizers_of(self._learner, model.policy)
        parts = self._layout.spaced(self._shared)
        # Left by an exception, the watch observes nothing more.
        with last_loss() as loss, Watch(self, optimizers, parts, loss) as watch:
            model.learn(self.agent_steps_total, callback=self._report)
            if self._updates == 0:
                raise RunFailedError(
                    f"agent.algorithm = {self._name}: makes no update in task.agent_steps = "
                    f"{self.agent_steps_total}; give more, or see to agent.sb3.learning_starts "
                    "and agent.sb3.gradient_steps"
                )
            watch.finish(0.0)

    def _theta(self) -> Tensor:
        return self._layout.pack(self._shared)


class _Report(BaseCallback):  # type: ignore[misc]
    """Notes episodes by their raw rewards, and pauses before each batch but the first."""

    def __init__(self, num_envs: int) -> None:
        super().__init__()
        self.pause: Any = None
        self.check: Any = None
        self._returns = np.zeros(num_envs)
        self._lengths = np.zeros(num_envs, dtype=np.int64)
        self._episodes: list[EpisodeEnd] = []
        self._rewards = 0.0

    def taken(self) -> tuple[list[EpisodeEnd], float]:
        """Return the episodes that ended and the sum of rewards, since they were last taken."""
        found = self._episodes, self._rewards
        self._episodes, self._rewards = [], 0.0
        return found

    def _on_rollout_start(self) -> None:
        if self.num_timesteps > 0:
            self.pause()

    def _on_step(self) -> bool:
        self.check()
        rewards = np.array([info["raw_reward"] for info in self.locals["infos"]])
        self._returns += rewards
        self._lengths += 1
        self._rewards += float(rewards.sum())
        for index in np.flatnonzero(self.locals["dones"]):
            self._episodes.append(
                EpisodeEnd(
                    self.num_timesteps, float(self._returns[index]), int(self._lengths[index])
                )
            )
            self._returns[index], self._lengths[index] = 0.0, 0
        return True


@contextmanager
def last_loss() -> Iterator[Any]:
    """Yield a function that returns what was last descended: the last `Tensor.backward`'s, 0-d.

    The library does not tell its losses. It calls `loss.backward()` before each step of an
    optimizer, and no hook of torch receives that tensor.
    """
    backward: Any = Tensor.backward
    last: list[Tensor] = []

    def noting(tensor: Tensor, *args: Any, **kwargs: Any) -> None:
        last[:] = [tensor.detach()]
        backward(tensor, *args, **kwargs)

    Tensor.backward = noting  # type: ignore[assignment, method-assign]
    try:
        yield lambda: last[0]
    finally:
        Tensor.backward = backward  # type: ignore[method-assign]
