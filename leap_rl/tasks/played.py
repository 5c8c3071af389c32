"""Families whose tasks an actor-critic agent plays: what they have in common."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from shlex import quote
from typing import TYPE_CHECKING

from leap_rl.learners.config import GAINS, AgentConfig
from leap_rl.tasks.family import Family

if TYPE_CHECKING:
    from torch import Tensor

    from leap_rl.envs.vector import GameVector
    from leap_rl.learners.learner import Learner
    from leap_rl.learners.task import Task, TaskSpec
    from leap_rl.networks.parameters import Layout
    from leap_rl.tasks.config import TaskConfig


class PlayedFamily(Family):
    """A family of games, each a vector of environments."""

    @abstractmethod
    def observation_shape(self, task: TaskConfig) -> tuple[int, ...]:
        """Return what the encoder sees: height, width and channels, or a vector's length.

        ValueError: a game cannot be made, or the games have no shape in common.
        """

    def advise(self, task: TaskConfig, run: str) -> tuple[str, str]:
        """Return how to compare the initialization with random ones in the first game."""
        trust = " --trust_imports" if self.imports(task) else ""
        return (
            "see whether agents learn a game faster from this initialization",
            f"evaluate --init {run} --games {quote(task.resolved_games[0])} --seeds 3 "
            f"--agent_steps {task.agent_steps} --open{trust}",
        )

    @abstractmethod
    def make_envs(self, tasks: Learner, game: str) -> Callable[[int], GameVector]:
        """Return what makes a game's B environments from a seed."""

    def player(self, tasks: Learner) -> AgentConfig:
        """Return the agents' settings, where the games have a say in them."""
        return tasks.agent

    def make(self, tasks: Learner, spec: TaskSpec) -> Task:
        """Make the task of an agent that learns the game."""
        from leap_rl.learners.a2c.task import ActorCriticTask

        return ActorCriticTask(
            spec,
            make_envs=self.make_envs(tasks, spec.game),
            config=tasks.task,
            agent=self.player(tasks),
            loss_difference=tasks.loss_difference,
        )

    def shared_layout(self, tasks: Learner) -> Layout:
        """Return the layout of what the agents share of the encoder."""
        from leap_rl.networks.encoders import make_encoder, shared_part
        from leap_rl.networks.parameters import layout_of

        spec, shape = self.player(tasks).encoder_spec, self.observation_shape(tasks.task)
        return shared_part(layout_of(make_encoder(spec, shape)), tasks.agent.share)

    def random_initialization(self, tasks: Learner, seed: int) -> Tensor:
        """Draw an encoder, and return what is shared of it."""
        import torch

        from leap_rl.networks.encoders import random_encoder, shared_part
        from leap_rl.networks.parameters import flatten_parameters

        encoder = random_encoder(
            self.player(tasks).encoder_spec,
            self.observation_shape(tasks.task),
            torch.Generator().manual_seed(seed),
            gain=GAINS[tasks.agent.initial_weights]["encoder"],
        )
        flat = flatten_parameters(encoder)
        return flat.vector[: shared_part(flat.layout, tasks.agent.share).size].clone()
