"""stable-baselines3's PPO, A2C, DQN and SAC as learners. Importing this imports none of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar, Final

from leap_rl.learners.config import LIBRARYS_OWN, AgentConfig
from leap_rl.learners.game_learner import GameLearner
from leap_rl.tasks.suite import ActionSpace

if TYPE_CHECKING:
    from torch import Tensor

    from leap_rl.learners.task import Task, TaskSpec
    from leap_rl.networks.parameters import Layout


LEAST_SIZE: Final = 36
"""Height and width from which the library's own network takes images (its NatureCNN)."""


@dataclass(frozen=True, kw_only=True)
class SB3(GameLearner):
    """An algorithm of stable-baselines3; a task is one call of its `learn`, from start to end."""

    options: ClassVar[tuple[str, ...]] = (
        *("encoder", "encoder_arguments", "encoder_sha256", "initial_weights", "share", "sb3"),
        "normalize_observations",
    )
    restorable = False
    carries_over = False
    plays_own_vectors = False
    shares_convolutions = False
    repeats_batches = False
    own_batches = True

    @classmethod
    def own_unroll_length(cls, agent: Mapping[str, Any]) -> int:
        from leap_rl.learners.sb3.model import unroll_of

        return unroll_of(cls, agent.get("sb3") or {})[0]

    def fitting(self, agent: AgentConfig, shape: tuple[int, ...]) -> AgentConfig:
        if agent.encoder == AgentConfig().encoder:
            small = len(shape) > 1 and min(shape[:2]) < LEAST_SIZE
            agent = replace(agent, encoder="minatar" if small else LIBRARYS_OWN)
        if agent.initial_weights == "auto":  # of our encoder; the paper's
            agent = replace(agent, initial_weights="torch")
        return agent

    def resolved_agent(self) -> AgentConfig:
        from leap_rl.learners.sb3.model import arguments_of, batch_of

        agent = super().resolved_agent()
        arguments_of(self)
        each, of = batch_of(self)
        if rest := self.task.agent_steps % each:
            below = self.task.agent_steps - rest
            fitting = f"{below} or {below + each}" if below else f"{each}"
            raise ValueError(
                f"task.agent_steps = {self.task.agent_steps}: must be a whole number of batches of "
                f"task.num_envs × {of} = {each} agent steps; take {fitting}, or another {of}"
            )
        self.shared_layout()
        return agent

    def check_machine(self) -> None:
        from leap_rl.learners.sb3.model import library

        library()
        super().check_machine()

    def __call__(self, spec: TaskSpec) -> Task:
        from leap_rl.learners.sb3.task import SB3Task

        return SB3Task(self, spec)

    def shared_layout(self) -> Layout:
        from leap_rl.learners.sb3.model import make_policy, shared_parameters
        from leap_rl.networks.parameters import layout_of_tensors

        return layout_of_tensors(shared_parameters(self, make_policy(self, self.actions(), seed=0)))

    def random_initialization(self, seed: int) -> Tensor:
        from leap_rl.learners.sb3.model import make_policy, shared_parameters

        policy = make_policy(self, self.actions(), seed=seed)
        return self.shared_layout().pack(shared_parameters(self, policy))

    def actions(self) -> ActionSpace:
        """Return the actions of a network that holds what is shared; ValueError if they differ."""
        if self.agent.share == "agent":
            return self._common_actions()
        return self.suite.action_space(self.task, self.task.resolved_games[0])


class PPO(SB3):
    """Proximal policy optimisation."""

    name = "sb3:PPO"


class A2C(SB3):
    """Advantage actor-critic."""

    name = "sb3:A2C"


class DQN(SB3):
    """Deep Q-learning."""

    name = "sb3:DQN"
    continuous_actions = False


class SAC(SB3):
    """Soft actor-critic."""

    name = "sb3:SAC"
    discrete_actions = False


ALGORITHMS: Final[tuple[type[SB3], ...]] = (PPO, A2C, DQN, SAC)
