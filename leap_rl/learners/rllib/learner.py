"""RLlib's PPO as a learner. Importing this imports neither torch nor Ray."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, ClassVar

from leap_rl.learners.config import AgentConfig
from leap_rl.learners.game_learner import GameLearner
from leap_rl.tasks.config import TaskConfig

if TYPE_CHECKING:
    from leap_rl.learners.task import Task, TaskSpec


LARGEST_MINIBATCH = 128
"""Agent steps of a minibatch: RLlib's default."""


@dataclass(frozen=True, kw_only=True)
class PPO(GameLearner):
    """RLlib's PPO in the trainer's process, which is restored by learning again from its start."""

    name = "rllib:PPO"
    options: ClassVar[tuple[str, ...]] = (
        *("encoder", "encoder_arguments", "encoder_sha256", "share", "initial_weights"),
        *("value_gain", "lr", "gamma", "entropy_coefficient", "value_coefficient"),
        *("reward_clip", "max_grad_norm", "rllib"),
    )
    carries_over = False
    plays_own_vectors = False
    shares_convolutions = False

    @classmethod
    def check(cls, task: TaskConfig, agent: AgentConfig, env_processes: int) -> None:
        super().check(task, agent, env_processes)
        batch, size = task.agent_steps_per_update, agent.rllib.minibatch_size
        if size != "auto" and task.is_sized and size > batch:
            raise ValueError(
                f"agent.rllib.minibatch_size = {size}: must be at most task.num_envs × "
                f"task.unroll_length = {batch} agent steps"
            )

    @property
    def agent_config(self) -> AgentConfig:
        agent = super().agent_config
        if agent.rllib.minibatch_size == "auto" and self.task.is_sized:
            size = min(LARGEST_MINIBATCH, self.task.agent_steps_per_update)
            agent = replace(agent, rllib=replace(agent.rllib, minibatch_size=size))
        return agent

    def __call__(self, spec: TaskSpec) -> Task:
        from leap_rl.learners.rllib.task import PPOTask

        return PPOTask(self, spec)
