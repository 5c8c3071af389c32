"""Makes the tasks that a config names. Small and picklable: it travels to the trainers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from leap_rl.compute.processor import check_precision
from leap_rl.envs.vector import GameVector
from leap_rl.networks.classifier import make_classifier
from leap_rl.networks.encoders import (
    Encoder,
    initialize,
    least_size,
    make_encoder,
    shared_part,
)
from leap_rl.networks.parameters import Layout, flatten_parameters, layout_of
from leap_rl.rl.config import GAINS, AgentConfig
from leap_rl.rl.hardware import check_machine
from leap_rl.supervised.classifier import shared_layout
from leap_rl.tasks import quadratic
from leap_rl.tasks.actor_critic import ActorCriticTask
from leap_rl.tasks.config import LossDifference, TaskConfig
from leap_rl.tasks.omniglot_config import CLASSES
from leap_rl.tasks.task import Task, TaskSpec

CATCH_SHAPE = (84, 84, 3)
"""Height, width and channels of Catch's observations."""


@dataclass(frozen=True, kw_only=True)
class ConfiguredTasks:
    """The task factory of a config.

    Args:
        task: Which tasks, and their budget.
        agent: The agents that learn them.
        loss_difference: Whether tasks compute each batch's loss after the update too.
        env_processes: Processes that a task's emulators are spread over; changes no bit.
        second_order: Whether a task's end is differentiated by its start, through all updates.
    """

    task: TaskConfig
    agent: AgentConfig
    loss_difference: LossDifference = "next_batch"
    env_processes: int = 1
    second_order: bool = False

    @property
    def frames_per_agent_step(self) -> int:
        """Emulator frames an agent step takes; 0 where there is no emulator."""
        return self.task.atari.settings.frameskip if self.task.kind == "atari" else 0

    @property
    def observation_shape(self) -> tuple[int, ...]:
        """What the encoder sees: height, width and channels of pixels, or a vector's length."""
        if self.task.kind == "gymnasium":
            from leap_rl.tasks.gymnasium_games import observation_shape

            return self.task.gymnasium.shape or observation_shape(self.task)
        atari = self.task.kind == "atari"
        return self.task.atari.settings.observation_shape if atari else CATCH_SHAPE

    @property
    def player(self) -> AgentConfig:
        """The agents' settings, where the games have a say in them."""
        if self.task.kind != "gymnasium":
            return self.agent
        clipped = replace(self.agent, reward_clip=self.task.gymnasium.reward_clip)
        return with_fitting_encoder(clipped, self.observation_shape)

    def __call__(self, spec: TaskSpec) -> Task:
        """Make the task of ``spec``."""
        if self.task.kind == "quadratic":
            return quadratic.QuadraticTask(
                spec,
                config=self.task,
                lr=self.agent.lr,
                loss_difference=self.loss_difference,
            )
        if self.task.kind == "omniglot":
            return self._make_omniglot(spec)
        return ActorCriticTask(
            spec,
            make_envs=self.make_envs(spec.game),
            config=self.task,
            agent=self.player,
            loss_difference=self.loss_difference,
        )

    def check_machine(self) -> None:
        """Refuse a machine that cannot compute the tasks as they were meant.

        Raises:
            ValueError: It lacks the device, the precision's units, the drawings, or a game.
        """
        if self.task.kind == "omniglot":
            from leap_rl.tasks.omniglot_games import open_data

            open_data(self.task)
            check_precision("task.omniglot.precision", self.task.omniglot.precision)
        elif self.task.kind != "quadratic":
            if self.task.kind == "gymnasium":
                from leap_rl.tasks.gymnasium_games import observation_shape

                observation_shape(self.task)  # makes each of the games
            check_machine(self.agent)

    def shared_layout(self) -> Layout:
        """Return the names and places of the shared parameters in the flat vector."""
        if self.task.kind == "quadratic":
            return quadratic.shared_layout()
        if self.task.kind == "omniglot":
            return shared_layout(layout_of(make_classifier(CLASSES)), self.task.omniglot.share)
        return shared_part(layout_of(self._encoder()), self.agent.share)

    def random_initialization(self, seed: int) -> Tensor:
        """Draw shared parameters, float32 [P], from the stream of ``seed``."""
        if self.task.kind == "quadratic":
            return quadratic.random_initialization(seed)
        if self.task.kind == "omniglot":
            return self._random_classifier(seed)
        encoder = self._encoder()
        gain = GAINS[self.agent.initial_weights]["encoder"]
        initialize(encoder, torch.Generator().manual_seed(seed), gain=gain)
        flat = flatten_parameters(encoder)
        return flat.vector[: shared_part(flat.layout, self.agent.share).size].clone()

    def _encoder(self) -> Encoder:
        return make_encoder(self.player.encoder, self.observation_shape)

    def _make_omniglot(self, spec: TaskSpec) -> Task:
        # Imported here: who plays games needs no reader of drawings.
        from leap_rl.tasks.omniglot import OmniglotTask
        from leap_rl.tasks.omniglot_games import task_drawings

        assert self.task.data is not None
        config = self.task.omniglot
        return OmniglotTask(
            spec,
            drawings=task_drawings(self.task.data, spec.game, config.split),
            config=config,
            loss_difference=self.loss_difference,
            second_order=self.second_order,
        )

    def _random_classifier(self, seed: int) -> Tensor:
        network = make_classifier(CLASSES)
        initialize(network, torch.Generator().manual_seed(seed))
        return flatten_parameters(network).vector[: self.shared_layout().size].clone()

    def make_envs(self, game: str) -> Callable[[int], GameVector]:
        """Return what makes a game's B environments from a seed."""
        # Imported here: each kind needs its own emulator, and only its own.
        num_envs = self.task.num_envs
        if self.task.kind == "catch":
            from leap_rl.envs.catch import make_catch

            return lambda seed: make_catch(game, num_envs=num_envs, seed=seed)
        if self.task.kind == "gymnasium":
            from leap_rl.envs.gymnasium_envs import make_gymnasium

            return lambda seed: make_gymnasium(
                game,
                num_envs=num_envs,
                seed=seed,
                shape=self.observation_shape,
                remake=self.task.gymnasium.remake,
                palette=self.task.gymnasium.palette,
                processes=self.env_processes,
            )
        from leap_rl.envs.atari import make_atari

        return lambda seed: make_atari(
            game,
            num_envs=num_envs,
            seed=seed,
            settings=self.task.atari.settings,
            processes=self.env_processes,
        )


def with_fitting_encoder(agent: AgentConfig, shape: tuple[int, ...]) -> AgentConfig:
    """Return the settings, with another encoder where the default one fits no such observations.

    That is the one of vectors, or the small one for images that are too small for the default.
    """
    if agent.encoder != AgentConfig().encoder:
        return agent
    if len(shape) == 1:
        return replace(agent, encoder="mlp")
    small = min(shape[:2]) < least_size(agent.encoder)
    return replace(agent, encoder="minatar") if small else agent
