"""A game learned by stable-baselines3, as a task: one call of `learn`, watched on its way.

P: flattened shared parameters. B: environments.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from itertools import count
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.logger import Logger
from stable_baselines3.common.vec_env import DummyVecEnv, VecNormalize
from torch import Tensor

from leap_rl.core.errors import RunFailedError
from leap_rl.core.seeding import Purpose, derive_seed
from leap_rl.envs.normalized import STATISTICS
from leap_rl.envs.single import SingleEnv
from leap_rl.learners.game_learner import GameLearner
from leap_rl.learners.sb3.model import (
    SEEDS,
    load_shared,
    make_model,
    optimizers_of,
    shared_parameters,
)
from leap_rl.learners.script.stepwise import Stepwise
from leap_rl.learners.task import EpisodeEnd, Observe, Progress, TaskSpec, TaskState
from leap_rl.meta.gradient_path import NonFiniteError, Point
from leap_rl.meta.watch import Watch
from leap_rl.networks.parameters import layout_of_tensors


class SB3Task:
    """Learns one game: `advance` lets the library play and learn to where it would play again.

    It is safe at its start and its end alone. The library draws from the global random streams,
    which it seeds; a task is a function of its seed and its start as long as nothing else draws
    from them.
    """

    def __init__(self, learner: GameLearner, spec: TaskSpec) -> None:
        self._learner, self._name = learner, learner.name
        config = learner.task
        numbers = count()  # the environments are made one after the other

        def make() -> SingleEnv:
            return SingleEnv(learner.suite.make_single(config, spec.game, number=next(numbers)))

        self._envs: Any = DummyVecEnv([make] * config.num_envs)
        if learner.agent.normalize_observations:
            self._envs = VecNormalize(self._envs, norm_reward=False)
        self._seed = derive_seed(spec.seed, Purpose.DATA) % SEEDS
        self._model = make_model(learner, self._envs, seed=self._seed)
        self._model.set_logger(Logger(folder=None, output_formats=[]))
        self._shared = shared_parameters(learner, self._model.policy)
        self._layout = layout_of_tensors(self._shared)
        self._report = _Report(config.num_envs)
        self._learning = Stepwise(self._learn)
        self._report.pause, self._report.check = self._learning.pause, self._learning.check
        self._observe: Observe | None = None
        self._losses: list[float] = []
        self._last_loss = 0.0
        self._updates = 0

    @property
    def done(self) -> bool:
        return self._learning.ended

    @property
    def agent_steps_total(self) -> int:
        return self._learner.task.agent_steps

    @property
    def device(self) -> torch.device:
        return torch.device("cpu")

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
        except NonFiniteError:
            raise
        except Exception as error:
            said = " ".join(f"{type(error).__name__}: {error}".split())[:300]
            if not all(bool(each.isfinite().all()) for each in self._model.policy.parameters()):
                raise NonFiniteError(f"{self._name}: {said}") from error
            raise RunFailedError(f"agent.algorithm = {self._name}: raises {said}") from error
        losses, self._losses = self._losses, []
        episodes, rewards = self._report.taken()
        return Progress(
            updates=self._updates,
            agent_steps=self._model.num_timesteps,
            losses={"total": sum(losses) / len(losses) if losses else self._last_loss},
            episodes=episodes,
            rewards=rewards,
        )

    def end_point(self, *, with_grad: bool) -> Point:
        """Return the parameters at the end with the last update's loss: no batch is left."""
        assert not with_grad, "methods that need it are refused"
        return Point(theta=self._layout.pack(self._shared), loss=self._last_loss)

    def state(self) -> TaskState:
        raise AssertionError("not restorable")

    def restore(self, state: Mapping[str, NDArray[Any]]) -> None:
        raise ValueError(f"tasks of agent.algorithm = {self._name} have no snapshots")

    def carry_over(self, state: Mapping[str, NDArray[Any]], shared: Tensor) -> None:
        raise ValueError(
            f"agents of agent.algorithm = {self._name} cannot be carried over to another round"
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
        self._learning.stop()
        self._envs.close()

    def _learn(self) -> None:
        """Learn the whole task; in its own thread."""
        model = self._model
        model.set_random_seed(self._seed)  # whatever was drawn since the model was made
        optimizers = optimizers_of(self._learner, model.policy)
        with last_loss() as loss:
            watch = Watch(self, optimizers, self._layout.spaced(self._shared), loss)
            try:
                model.learn(self.agent_steps_total, callback=self._report)
                watch.finish(0.0)
            finally:
                watch.remove()

    def observe(self, theta: Tensor, loss: Tensor | float, grad: Tensor | None = None) -> None:
        """Take in a point of the path before its update; called by the watch."""
        assert self._observe is not None
        self._observe(Point(theta=theta, loss=loss, grad=grad))
        self._last_loss = float(loss)
        self._losses.append(self._last_loss)
        self._updates += 1

    def finish(self, theta: Tensor, loss: Tensor | float, grad: Tensor | None = None) -> None:
        """Leave the path open: its trainer ends it."""


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

    The library keeps its losses to itself. It computes each by `loss.backward()` before the step of
    an optimizer, and no hook of torch is told of which tensor it was.
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
