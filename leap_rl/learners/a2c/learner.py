"""Advantage actor-critic as a learner (paper, appendix "Experiment details: Atari")."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from leap_rl.learners.config import AgentConfig
from leap_rl.learners.defaults import DEFAULTS, Settings
from leap_rl.learners.game_learner import GameLearner

if TYPE_CHECKING:
    from leap_rl.learners.task import Task, TaskSpec


@dataclass(frozen=True, kw_only=True)
class A2C(GameLearner):
    """Our own agent, for games with discrete or continuous actions."""

    name = "a2c"
    options: ClassVar[tuple[str, ...]] = (
        *("encoder", "encoder_arguments", "encoder_sha256", "share", "initial_weights"),
        *("value_gain", "initial_log_std", "lr", "gamma"),
        *("rmsprop_alpha", "rmsprop_eps", "rmsprop_start"),
        *("entropy_coefficient", "value_coefficient", "reward_clip", "max_grad_norm"),
        *("normalize_observations", "precision", "device", "path_loss"),
    )
    spreads_environments = True
    saves_player = True
    leaves_ignored_out = True

    def resolved_agent(self) -> AgentConfig:
        from leap_rl.learners.hardware import resolve

        agent = resolve(super().resolved_agent())
        if agent.initial_log_std != 0 and not self.suite.continuous_actions(self.task):
            raise ValueError(
                f"agent.initial_log_std = {agent.initial_log_std}: is for continuous actions, and "
                f"those of {', '.join(self.task.resolved_games)} are discrete; leave it out"
            )
        return agent

    def defaults(self) -> Settings:
        return DEFAULTS[self.suite.domain(self.task)]

    def check_processor(self) -> None:
        from leap_rl.learners.hardware import check_machine

        check_machine(self.agent)

    def __call__(self, spec: TaskSpec) -> Task:
        from leap_rl.learners.a2c.task import ActorCriticTask

        return ActorCriticTask(self, spec)
