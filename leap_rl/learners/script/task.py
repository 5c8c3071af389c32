"""A game learned by a script's own loop, as a task: one whole learning, watched on its way.

P: flattened shared parameters.
"""

from __future__ import annotations

import random
from collections.abc import Iterable
from pathlib import Path
from textwrap import shorten
from traceback import extract_tb
from types import FunctionType
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from leap_rl.core.errors import RunFailedError
from leap_rl.core.lines import in_a_line
from leap_rl.core.seeding import Purpose, derive_seed
from leap_rl.learners.game_learner import GameLearner
from leap_rl.learners.script.report import CountedEnv, MisuseError, Report
from leap_rl.learners.task import Observe, Progress, TaskSpec
from leap_rl.learners.watched import SEEDS, WatchedTask
from leap_rl.meta.gradient_path import NonFiniteError
from leap_rl.meta.watch import Loss, Watch, watched
from leap_rl.networks.encoders import features_of, make_encoder
from leap_rl.networks.parameters import layout_of, load_parameters
from leap_rl.tasks.options import MIXED


class ScriptTask(WatchedTask):
    """Learns one game by a script: `advance` lets it run from one optimizer step to the next."""

    def __init__(self, learner: GameLearner, spec: TaskSpec, function: FunctionType) -> None:
        super().__init__(learner, spec)
        agent, shape = learner.agent_config, learner.observation_shape
        self._learner, self._spec, self._function = learner, spec, function
        self._encoder = make_encoder(agent.encoder_spec, shape)
        if not hasattr(self._encoder, "features"):
            features: Any = features_of(agent.encoder_spec, self._encoder, shape)
            self._encoder.features = features
        elif not isinstance(self._encoder.features, int):
            raise ValueError(
                f"agent.encoder = {agent.encoder}: its attribute features is a "
                f"{type(self._encoder.features).__name__}, and a loop's encoder.features is the "
                "number of its features; give it another name"
            )
        self._layout = layout_of(self._encoder)
        self._report = Report(self._budget, self._watch)
        self._envs: list[CountedEnv] = []
        self._numbers: set[int] = set()
        self._watched: Watch | None = None
        self._start = torch.zeros(0)
        self._agent: nn.Module = self._encoder

    def start(self, shared: Tensor) -> None:
        self._start = shared.clone()
        load_parameters(self._encoder, self._layout.named(self._start))

    def advance(self, observe: Observe) -> Progress:
        """Let the script run to just before its next update, or to its end.

        Raises:
            RunFailedError: It raised something, or its learning is not what it must be; one line,
                which names it.
            NonFiniteError: What it steps by is NaN or infinite.
        """
        self._observe = observe
        rewards = self._report.rewards
        try:
            self._learning.resume()
            if self.done:
                self._check_end()
        except NonFiniteError as error:
            raise NonFiniteError(f"{self._name}: {error}") from error
        except BaseException as error:
            if isinstance(error, KeyboardInterrupt | SystemExit) and not self.done:
                raise  # this process's own
            raise RunFailedError(f"agent.algorithm = {self._name}: {self._said(error)}") from error
        episodes, self._report.episodes = self._report.episodes, []
        return Progress(
            updates=self._updates,
            agent_steps=self._budget if self.done else self._report.agent_steps,
            losses={"total": self._mean_loss()},
            episodes=episodes,
            rewards=self._report.rewards - rewards,
        )

    def named_parameters(self) -> dict[str, Tensor]:
        """Return the module that the script returned; if none, the encoder."""
        parts = self._agent.state_dict().items()
        return {name: part.detach().cpu().clone() for name, part in parts}

    def close(self) -> None:
        super().close()
        for env in self._envs:
            env.close()

    def _learn(self) -> object:
        """Call the function; in its own thread."""
        random.seed(self._seed)
        np.random.seed(self._seed)
        torch.manual_seed(self._seed)
        given = (self._make_env, self._encoder, self._budget, self._seed, self._report)
        own = self._function(*given, **self._learner.agent.options)
        if self._watched is not None:
            self._watched.finish(self._last_loss)
        return own

    def _make_env(self, number: int) -> CountedEnv:
        learner, spec = self._learner, self._spec
        envs = learner.suite.make_single(learner.task, spec.game, number=number)
        seed = derive_seed(spec.seed, Purpose.ENVIRONMENTS, number) % SEEDS
        self._numbers.add(number)
        self._envs.append(CountedEnv(envs, self._report, self._learning.check, seed))
        return self._envs[-1]

    def _watch(self, optimizer: Optimizer | Iterable[Optimizer], loss: Loss | None) -> None:
        if self._watched is not None:
            raise MisuseError(
                "calls report.watch twice; give it all optimizers of the encoder in one call"
            )
        # The vector has gaps between its parameters, where nothing steps.
        parts = self._layout.spaced(dict(self._encoder.named_parameters()))
        try:
            optimizers, parts = watched(optimizer, parts, self._start)
        except ValueError as error:
            raise MisuseError(f"report.watch: {error}") from error
        self._watched = Watch(self, optimizers, parts, loss)

    def observe(self, theta: Tensor, loss: Tensor | float, grad: Tensor | None = None) -> None:
        """Take in a point of the path before its update; called by the watch."""
        if self._updates == 0 and not torch.equal(theta, self._start):
            raise MisuseError(
                "changes the encoder before the first step that report.watch sees; leave its "
                "weights as they are given, such as by no orthogonal initialization"
            )
        if self._updates > 0:
            self._learning.pause()  # the update before is done
        super().observe(theta, loss, grad)

    def _theta(self) -> Tensor:
        return self._layout.pack(dict(self._encoder.named_parameters()))

    def _check_end(self) -> None:
        """Raise MisuseError if what the script did is no learning of its budget."""
        result, budget = self._learning.result, self._budget
        if not (result is None or isinstance(result, nn.Module)):
            raise MisuseError(
                f"returns {type(result).__name__}; must return None, or a torch.nn.Module"
            )
        self._agent = self._encoder if result is None else result
        if self._updates == 0:
            raise MisuseError(
                "no step of the encoder's optimizer was seen; call report.watch(optimizer) before "
                "the first"
            )
        if self._report.most < budget:
            raise MisuseError(
                f"ends after {self._report.agent_steps} of {budget} agent steps; it must use up "
                "its budget, in environments of this process (SyncVectorEnv): take a "
                "task.agent_steps that its batches divide"
            )
        self._check_dealt()

    def _check_dealt(self) -> None:
        """Raise MisuseError if games that are dealt over environments have none."""
        if self._spec.game != MIXED:
            return
        games = self._learner.task.resolved_games
        dealt = {number % len(games) for number in self._numbers}
        if missing := [game for i, game in enumerate(games) if i not in dealt]:
            raise MisuseError(
                f"makes no environment of {missing[0]}: task.mix_games = true deals the numbers of "
                f"make_env(number) over {len(games)} games; make at least as many environments, "
                "numbered from 0"
            )

    def _said(self, error: BaseException) -> str:
        """Return what the script did wrong, or what it raised and where."""
        if isinstance(error, MisuseError):
            return str(error)
        own = self._function.__code__.co_filename
        lines = [frame.lineno for frame in extract_tb(error.__traceback__) if frame.filename == own]
        where = f" ({Path(own).name}, line {lines[-1]})" if lines else ""
        return shorten(f"raises {in_a_line(error)}", 300) + where
