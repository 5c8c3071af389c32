"""PPO as CleanRL writes it, in one function: `leap-rl` learns what its encoder starts from.

leap-rl learn --task.kind gymnasium --task.games '["MinAtar/Breakout-v1"]' \\
    --agent.algorithm ppo_loop:learn --trust_imports

with this folder on PYTHONPATH. What differs from CleanRL's ppo.py is where the environments, the
encoder and the seed come from, and two lines: `report.watch`, and `report` at an episode's end.

T: agent steps of a rollout. B: environments.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import gymnasium
import numpy as np
import torch
from gymnasium.spaces import Box, Discrete
from gymnasium.vector import AutoresetMode, SyncVectorEnv
from gymnasium.wrappers import ClipAction, RecordEpisodeStatistics
from torch import Tensor, nn
from torch.distributions import Categorical, Distribution, Independent, Normal


def head(inputs: int, outputs: int, gain: float) -> nn.Linear:
    """Return a linear layer with orthogonal weights."""
    layer = nn.Linear(inputs, outputs)
    nn.init.orthogonal_(layer.weight, gain)
    nn.init.zeros_(layer.bias)
    return layer


class Agent(nn.Module):
    """Policy and values on one encoder."""

    def __init__(self, encoder: nn.Module, actions: Discrete | Box) -> None:
        super().__init__()
        self.encoder = encoder
        self.continuous = isinstance(actions, Box)
        size = actions.shape[0] if self.continuous else int(actions.n)
        self.actor = head(encoder.features, size, 0.01)
        self.critic = head(encoder.features, 1, 1.0)
        self.log_std = nn.Parameter(torch.zeros(size)) if self.continuous else None

    def forward(self, observations: Tensor) -> tuple[Distribution, Tensor]:
        """Return the policy and the values [N] of observations [N, ...]."""
        hidden = self.encoder(observations)
        outputs, values = self.actor(hidden), self.critic(hidden).squeeze(-1)
        if self.log_std is None:
            return Categorical(logits=outputs), values
        return Independent(Normal(outputs, self.log_std.exp()), 1), values


def advantages_of(
    rewards: Tensor, values: Tensor, ended: Tensor, last: Tensor, gamma: float, gae_lambda: float
) -> Tensor:
    """Return the generalized advantage estimates [T, B]; `last` are the values [B] that follow."""
    found, following = torch.zeros_like(rewards), torch.zeros_like(last)
    for t in reversed(range(len(rewards))):
        goes_on = 1.0 - ended[t]
        delta = rewards[t] + gamma * goes_on * last - values[t]
        found[t] = following = delta + gamma * gae_lambda * goes_on * following
        last = values[t]
    return found


def learn(
    make_env: Callable[[int], gymnasium.Env[Any, Any]],
    encoder: nn.Module,
    budget: int,
    seed: int,
    report: Any,
    *,
    num_envs: int = 8,
    num_steps: int = 128,
    lr: float = 2.5e-4,
    epochs: int = 4,
    minibatches: int = 4,
    gamma: float = 0.99,
    gae_lambda: float = 0.95,
    clip: float = 0.1,
    entropy: float = 0.01,
) -> nn.Module:
    """Learn a game from an encoder for `budget` agent steps.

    The defaults are those of CleanRL's ppo_atari.py; `agent.options` sets others.
    """
    torch.manual_seed(seed)

    def make(i: int) -> gymnasium.Env[Any, Any]:
        env = RecordEpisodeStatistics(make_env(i))
        return ClipAction(env) if isinstance(env.action_space, Box) else env

    envs = SyncVectorEnv(
        [lambda i=i: make(i) for i in range(num_envs)], autoreset_mode=AutoresetMode.SAME_STEP
    )
    agent = Agent(encoder, envs.single_action_space)
    optimizer = torch.optim.Adam(agent.parameters(), lr=lr, eps=1e-5)
    loss = torch.zeros(())
    report.watch(optimizer, lambda: loss)
    if budget % num_envs:
        raise ValueError(f"task.agent_steps = {budget}: must be a multiple of num_envs {num_envs}")
    global_step = 0
    observations = torch.from_numpy(envs.reset(seed=seed)[0])
    while global_step < budget:
        optimizer.param_groups[0]["lr"] = lr * (1.0 - global_step / budget)
        rollout: list[tuple[Tensor, ...]] = []
        for _ in range(min(num_steps, (budget - global_step) // num_envs)):
            with torch.no_grad():
                policy, value = agent(observations)
                action = policy.sample()
            seen, reward, terminated, truncated, info = envs.step(action.numpy())
            global_step += num_envs
            ended = torch.from_numpy(terminated | truncated).float()
            rewards = torch.from_numpy(reward).float()
            rollout.append((observations, action, policy.log_prob(action), rewards, ended, value))
            observations = torch.from_numpy(seen)
            for i in np.flatnonzero(terminated | truncated):
                episode = info["final_info"]["episode"]
                report(global_step, episode["r"][i], episode["l"][i])
        with torch.no_grad():
            last = agent(observations)[1]
        seen_, actions, log_probs, rewards, ended, values = map(
            torch.stack, zip(*rollout, strict=True)
        )
        advantages = advantages_of(rewards, values, ended, last, gamma, gae_lambda)
        parts = (seen_, actions, log_probs, advantages, advantages + values)
        flat = [part.flatten(0, 1) for part in parts]
        for _ in range(epochs):
            for some in torch.randperm(len(flat[0])).chunk(minibatches):
                x, a, log_prob, advantage, target = (part[some] for part in flat)
                policy, value = agent(x)
                advantage = (advantage - advantage.mean()) / (advantage.std() + 1e-8)
                ratio = (policy.log_prob(a) - log_prob).exp()
                clipped = ratio.clamp(1.0 - clip, 1.0 + clip)
                gain = torch.min(ratio * advantage, clipped * advantage).mean()
                value_loss = 0.5 * (value - target).square().mean()
                loss = 0.5 * value_loss - gain - entropy * policy.entropy().mean()
                optimizer.zero_grad()
                loss.backward()
                nn.utils.clip_grad_norm_(agent.parameters(), 0.5)
                optimizer.step()
    return agent
