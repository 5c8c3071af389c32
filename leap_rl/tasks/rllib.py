"""Games learned by RLlib's PPO: its options, and how its tasks are made.

Importing this costs no import of torch, of Gymnasium or of Ray.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from importlib import import_module
from typing import TYPE_CHECKING, ClassVar

from leap_rl.learners.config import AgentConfig
from leap_rl.tasks.gymnasium import GymnasiumFamily

if TYPE_CHECKING:
    from leap_rl.learners.learner import Learner
    from leap_rl.learners.task import Task, TaskSpec
    from leap_rl.tasks.config import TaskConfig


@dataclass(frozen=True)
class RllibConfig:
    """PPO as RLlib has it, where it differs from our agent; defaults are RLlib's."""

    num_epochs: int = 30
    """Passes over each batch of task.num_envs × task.unroll_length agent steps."""

    minibatch_size: int = 128
    """Agent steps that an update learns from."""

    gae_lambda: float = 1.0
    """λ of the generalized advantage estimates."""

    clip: float = 0.3
    """Bound of the policy's ratio."""

    value_clip: float = 10.0
    """Bound of a squared error of the values."""

    def __post_init__(self) -> None:
        for name in ("num_epochs", "minibatch_size"):
            if getattr(self, name) < 1:
                raise ValueError(f"agent.rllib.{name} = {getattr(self, name)}: must be at least 1")
        if not 0 <= self.gae_lambda <= 1:
            raise ValueError(f"agent.rllib.gae_lambda = {self.gae_lambda}: must lie in [0, 1]")
        for name in ("clip", "value_clip"):
            if not getattr(self, name) > 0:
                raise ValueError(
                    f"agent.rllib.{name} = {getattr(self, name)}: must be greater than 0"
                )


class RllibFamily(GymnasiumFamily):
    """Gymnasium environments, as `GymnasiumFamily` has them, learned by RLlib's PPO."""

    kind = "rllib"
    options = ("agent_steps", "num_envs", "unroll_length", "gymnasium", "rllib")
    ignored_agent_options = (
        *("reward_clip", "share", "precision", "device", "path_loss"),
        *("rmsprop_alpha", "rmsprop_eps", "rmsprop_start"),
    )
    resolved_agent_options: ClassVar[Mapping[str, object]] = {
        "precision": "float32",
        "device": "cpu",
    }
    spreads_environments = False  # RLlib's own

    def with_updates(self, task: TaskConfig, updates: int) -> TaskConfig:
        """Raise ValueError: only methods that carry agents over ask for it."""
        raise ValueError(
            "meta.method = pretraining: agents of task.kind = rllib cannot be carried over to "
            "another round; take another meta.method, or task.kind = gymnasium"
        )

    def check(self, task: TaskConfig, agent: AgentConfig, env_processes: int) -> None:
        """Refuse options that RLlib's agent does not have, and batches that it cannot split."""
        super().check(task, agent, env_processes)
        batch = task.agent_steps_per_update
        if agent.rllib.minibatch_size > batch:
            raise ValueError(
                f"agent.rllib.minibatch_size = {agent.rllib.minibatch_size}: must be at most "
                f"task.num_envs × task.unroll_length = {batch} agent steps"
            )

    def resolve_agent(self, tasks: Learner) -> AgentConfig:
        """Return the agents' settings with an encoder that fits, in float32 on the CPU."""
        return replace(super().resolve_agent(tasks), precision="float32", device="cpu")

    def make(self, tasks: Learner, spec: TaskSpec) -> Task:
        """Make the task of a PPO agent that learns the game."""
        # By its name, and when it is needed: it takes Ray, and knows this package itself.
        make: type[Task] = import_module("leap_rl.learners.rllib.task").PPOTask
        return make(  # type: ignore[call-arg]
            spec,
            config=tasks.task,
            agent=self.player(tasks),
            observation_shape=self.observation_shape(tasks.task),
            loss_difference=tasks.loss_difference,
        )
