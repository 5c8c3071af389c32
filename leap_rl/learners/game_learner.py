"""Learners that play games, and share an encoder of their observations.

P: flattened shared parameters. B: environments.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, ClassVar

from leap_rl.learners.config import AgentConfig
from leap_rl.learners.learner import Learner
from leap_rl.tasks.config import TaskConfig
from leap_rl.tasks.suite import ActionSpace, GameSuite

if TYPE_CHECKING:
    from torch import Tensor

    from leap_rl.envs.vector import GameVector
    from leap_rl.networks.actor_critic import ActorCritic
    from leap_rl.networks.parameters import Layout


@dataclass(frozen=True, kw_only=True)
class GameLearner(Learner):
    """A learner of games whose agents share an encoder, its convolutions, or all."""

    learns = GameSuite
    options: ClassVar[tuple[str, ...]] = (
        *("encoder", "encoder_arguments", "encoder_sha256", "initial_weights"),
        *("lr", "gamma", "entropy_coefficient", "reward_clip", "options"),
        "normalize_observations",
    )
    shares_encoder = True
    shares_convolutions: ClassVar[bool] = True
    """Whether its agents can share an encoder but for its linear layer."""
    plays_own_vectors: ClassVar[bool] = True
    """Whether it plays a user's own `VectorEnv`, which is stepped whole. Otherwise its environments
    are those of `envs.single`."""
    leaves_ignored_out: ClassVar[bool] = False
    """Whether it learns from no action that a `VectorEnv` ignored (`envs.vector.VectorStep`)."""

    @classmethod
    def check(cls, task: TaskConfig, agent: AgentConfig, env_processes: int) -> None:
        super().check(task, agent, env_processes)
        assert isinstance(task.suite, GameSuite), "refused"
        if lacks := sorted({"encoder", "initial_weights"} - {*cls.options}):
            raise ValueError(
                f"agent.algorithm = {cls.called(agent)}: its options lack {', '.join(lacks)}, "
                "which every GameLearner reads"
            )
        if agent.share == "convolutions" and not cls.shares_convolutions:
            raise ValueError(
                "agent.share = convolutions: has no effect with agent.algorithm = "
                f"{cls.called(agent)}; take encoder, or agent"
            )
        if not cls.plays_own_vectors and task.suite.life_loss_ends(task):
            raise ValueError(
                f"task.atari.life_loss_ends = true: agent.algorithm = {cls.called(agent)} takes "
                "the loss of a life for the end of an episode, so that its returns would be those "
                "of lives; set it to false"
            )

    @property
    def suite(self) -> GameSuite:
        suite = self.task.suite
        assert isinstance(suite, GameSuite), f"check refuses task.kind = {suite.kind}"
        return suite

    @property
    def observation_shape(self) -> tuple[int, ...]:
        return self.suite.observation_shape(self.task)

    @property
    def agent_config(self) -> AgentConfig:
        shape = self.observation_shape
        if self.agent.normalize_observations and len(shape) > 1:
            raise ValueError(
                f"agent.normalize_observations = true: is for observations that are vectors, and "
                f"those of task.kind = {self.task.kind} are images of {list(shape)}, which "
                "encoders scale; leave it out"
            )
        agent = self.fitting(super().resolved_agent(), shape)
        if agent.reward_clip == "auto" and "reward_clip" in self.options:
            agent = replace(agent, reward_clip=self.suite.reward_clip)
        return agent

    def fitting(self, agent: AgentConfig, shape: tuple[int, ...]) -> AgentConfig:
        """Return the options with an encoder that takes such observations, where none is named."""
        return _with_fitting_encoder(agent, shape)

    def make_envs(self, game: str) -> Callable[[int], GameVector]:
        def make(seed: int) -> GameVector:
            games = self.suite.make_envs(self.task, game, seed=seed, processes=self.env_processes)
            if not self.agent.normalize_observations:
                return games
            from leap_rl.envs.normalized import NormalizedVector

            return NormalizedVector(games)

        return make

    def restores(self, game: str) -> bool:
        own = self.suite.own_vector(self.task, game)
        return super().restores(game) and (own is None or own.restorable)

    def check_machine(self) -> None:
        super().check_machine()
        self._check_own_vectors()

    def resolved_agent(self) -> AgentConfig:
        from leap_rl.learners.hardware import with_source

        self._check_own_vectors()
        self._check_actions()
        if self.agent.share == "agent":
            self._common_actions()
        return with_source(self.agent_config)

    def shared_layout(self) -> Layout:
        from leap_rl.networks.encoders import make_encoder, shared_part
        from leap_rl.networks.parameters import layout_of

        if self.agent.share == "agent":
            return layout_of(self._network())
        encoder = make_encoder(self.agent_config.encoder_spec, self.observation_shape)
        return shared_part(layout_of(encoder), self.agent.share)

    def random_initialization(self, seed: int) -> Tensor:
        import torch

        from leap_rl.networks.encoders import random_encoder, shared_part
        from leap_rl.networks.parameters import flatten_parameters

        draws = torch.Generator().manual_seed(seed)
        agent = self.agent_config
        gains, share = agent.gains, agent.share
        encoder = module = random_encoder(
            agent.encoder_spec, self.observation_shape, draws, gain=gains["encoder"]
        )
        if share == "agent":
            module = network = self._network()
            network.encoder = encoder
            continuous = self._common_actions().continuous
            log_std = agent.initial_log_std if continuous else None
            network.draw_heads(draws, gains, log_std=log_std)
        flat = flatten_parameters(module)
        return flat.vector[: shared_part(flat.layout, share).size].clone()

    def _check_actions(self) -> None:
        """Raise ValueError where it does not learn the actions of some game."""
        games, name = ", ".join(self.task.resolved_games), self.called(self.agent)
        if not self.continuous_actions and self.suite.continuous_actions(self.task):
            raise ValueError(
                f"agent.algorithm = {name}: learns discrete actions, and some of task.games = "
                f"{games} have continuous ones; take a2c or rllib:PPO"
            )
        if not self.discrete_actions and self.suite.discrete_actions(self.task):
            raise ValueError(
                f"agent.algorithm = {name}: learns continuous actions, and some of task.games = "
                f"{games} have discrete ones; take sb3:PPO or sb3:DQN"
            )

    def _check_own_vectors(self) -> None:
        """Raise ValueError for a user's own `VectorEnv` that cannot be played so."""
        name = self.called(self.agent)
        for game in self.task.resolved_games:
            own = self.suite.own_vector(self.task, game)
            if own is None:
                continue
            if not self.plays_own_vectors:
                raise ValueError(
                    f"agent.algorithm = {name}: plays single environments, and task.games has the "
                    f"VectorEnv {game!r}; take a2c"
                )
            if own.next_step and not self.leaves_ignored_out:
                raise ValueError(
                    f"agent.algorithm = {name}: learns from every action, and the VectorEnv "
                    f"{game!r} of task.games ignores those after an end; take a2c, or "
                    "AutoresetMode.SAME_STEP"
                )
            if own.next_step and self.task.unroll_length == 1:
                raise ValueError(
                    f"task.unroll_length = 1: all actions of an update may be ignored by the "
                    f"VectorEnv {game!r} of task.games, as those after an end are; take at least 2"
                )
            if self.env_processes != 1:
                raise ValueError(
                    f"runtime.env_processes = {self.env_processes}: has no effect on the VectorEnv "
                    f"{game!r} of task.games, which is stepped whole; leave it out"
                )

    def _network(self) -> ActorCritic:
        """Return the network of all games, without weights; ValueError if actions differ."""
        from leap_rl.networks.actor_critic import ActorCritic

        return ActorCritic(
            self.agent_config.encoder_spec,
            observation_shape=self.observation_shape,
            num_logits=self._common_actions().num_logits,
        )

    def _common_actions(self) -> ActionSpace:
        return self.suite.common_actions(
            self.task, option="agent.share = agent", instead="agent.share = encoder"
        )


def _with_fitting_encoder(agent: AgentConfig, shape: tuple[int, ...]) -> AgentConfig:
    """Replace the default encoder by that of vectors or small images, where it does not fit."""
    from leap_rl.networks.encoders import least_size

    if agent.encoder != AgentConfig().encoder:
        return agent
    if len(shape) == 1:
        return replace(agent, encoder="mlp")
    small = min(shape[:2]) < least_size(agent.encoder)
    return replace(agent, encoder="minatar") if small else agent
