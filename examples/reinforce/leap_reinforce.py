"""A learner of one's own: REINFORCE (Williams 1992), with the returns' mean as its baseline.

It knows no environment, and plays whatever `task` names:

    leap-rl learn --task.kind gymnasium --task.games '["MinAtar/Breakout-v1"]' \\
        --agent.algorithm leap_reinforce:Reinforce --trust_imports --task.unroll_length 50

with this folder on PYTHONPATH, or by its short name once it is installed:

    pip install --no-deps --no-build-isolation ./examples/reinforce
    leap-rl learn ... --agent.algorithm reinforce --agent.options '{"baseline": false}'

Returns are those of an unroll, which should be about as long as an episode.

T: agent steps of an unroll. B: environments. A: actions.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from leap_rl.learners.config import AgentConfig
from leap_rl.learners.game_learner import GameLearner
from leap_rl.learners.game_task import Experience, PolicyTask
from leap_rl.learners.task import Task, TaskSpec
from leap_rl.tasks.config import TaskConfig


@dataclass(frozen=True, kw_only=True)
class Reinforce(GameLearner):
    """Plays by the policy, and raises the logits of what paid off."""

    name = "reinforce"
    continuous_actions = False

    @classmethod
    def check(cls, task: TaskConfig, agent: AgentConfig, env_processes: int) -> None:
        """Refuse options that it does not have, too."""
        super().check(task, agent, env_processes)
        if unknown := agent.options.keys() - {"baseline"}:
            raise ValueError(f"agent.options = {sorted(unknown)}: reinforce has baseline alone")

    def __call__(self, spec: TaskSpec) -> Task:
        """Make the task of an agent that learns the game."""
        return ReinforceTask(self, spec)


class ReinforceTask(PolicyTask):
    """Learns one game: unrolls of T agent steps, their returns, a step of Adam."""

    def make_optimizer(self, parameters: list[nn.Parameter]) -> torch.optim.Optimizer:
        """Return Adam with the rate `agent.lr`."""
        return torch.optim.Adam(parameters, lr=self.agent.lr)

    def loss(self, batch: Experience) -> Tensor:
        """Return the mean of −(return − baseline) · log π less the entropy's part, 0-d."""
        returns, following = [], torch.zeros(batch.rewards.shape[1])
        for reward, ended in zip(batch.rewards.flip(0), batch.ended.flip(0), strict=True):
            following = reward + self.agent.gamma * following * ~ended
            returns.insert(0, following)
        advantages = torch.stack(returns).flatten()
        if self.agent.options.get("baseline", True):
            advantages = advantages - advantages.mean()
        logits, _ = self.network(batch.observations.flatten(0, 1))
        policy = torch.distributions.Categorical(logits=logits)
        gain = (advantages * policy.log_prob(batch.actions.flatten())).mean()
        return -(gain + self.agent.entropy_coefficient * policy.entropy().mean())
