"""An agent as CleanRL writes them, from an encoder that leap_rl meta-trained, on a game of MinAtar.

python examples/cleanrl_minatar.py --updates 5000

`Agent` fits CleanRL's ppo_atari.py. The loop below is the shortest that learns: A2C in plain
PyTorch.
"""

from __future__ import annotations

import argparse

import gymnasium
import numpy as np
import torch
from torch import Tensor, nn

from leap_rl import pretrained
from leap_rl.envs.single import GameEnv


class Agent(nn.Module):
    """Policy and values on one encoder."""

    def __init__(self, initialization: str, num_actions: int) -> None:
        super().__init__()
        self.network = pretrained.load(initialization)
        self.actor = nn.Linear(self.network.features, num_actions)
        self.critic = nn.Linear(self.network.features, 1)

    def get_value(self, x: Tensor) -> Tensor:
        """Return values [N, 1] of observations [N, H, W, C] in 0..255; not divided by 255."""
        return self.critic(self.network(x.to(torch.uint8)))

    def get_action_and_value(
        self, x: Tensor, action: Tensor | None = None
    ) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Return actions, their log probabilities, entropies, all [N], and values [N, 1]."""
        # Of images; vectors go in as they are, float32.
        hidden = self.network(x.to(torch.uint8))
        policy = torch.distributions.Categorical(logits=self.actor(hidden))
        action = policy.sample() if action is None else action
        return action, policy.log_prob(action), policy.entropy(), self.critic(hidden)


def options() -> argparse.ArgumentParser:
    """Return the options."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--initialization", default="minatar-leap")
    parser.add_argument("--game", default="MinAtar/Breakout-v1")
    parser.add_argument("--updates", type=int, default=5000, help="of 16 x 5 agent steps")
    parser.add_argument("--seed", type=int, default=0)
    return parser


def main(words: list[str] | None = None) -> None:
    """Learn the game, and print the mean reward of an agent step now and then."""
    given = options().parse_args(words)
    torch.manual_seed(given.seed)
    envs = gymnasium.vector.SyncVectorEnv(
        [lambda: GameEnv(given.game, palette=True)] * 16,
        autoreset_mode=gymnasium.vector.AutoresetMode.SAME_STEP,
    )
    agent = Agent(given.initialization, envs.single_action_space.n)
    optimizer = torch.optim.RMSprop(agent.parameters(), lr=7e-4, eps=1e-5)
    observations = torch.from_numpy(envs.reset(seed=given.seed)[0])
    recent: list[float] = []
    for update in range(given.updates):
        steps, rewards, going = [], [], []
        for _ in range(5):
            steps.append(agent.get_action_and_value(observations))
            seen, reward, terminated, truncated, _ = envs.step(steps[-1][0].numpy())
            observations = torch.from_numpy(seen)
            rewards.append(torch.from_numpy(reward).float())
            going.append(torch.from_numpy(~(terminated | truncated)).float())
        recent += [float(reward.mean()) for reward in rewards]
        with torch.no_grad():
            target = agent.get_value(observations).squeeze(-1)
        loss = torch.zeros(())
        for (_, log_prob, entropy, value), reward, on in zip(
            *(reversed(part) for part in (steps, rewards, going)), strict=True
        ):
            target = reward + 0.99 * on * target
            advantage = target - value.squeeze(-1)
            policy_loss = -log_prob * advantage.detach()
            loss = loss + (policy_loss + 0.5 * advantage**2 - 0.01 * entropy).mean() / len(steps)
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(agent.parameters(), 0.5)
        optimizer.step()
        if (update + 1) % max(given.updates // 10, 1) == 0:
            print(f"{(update + 1) * 80:,} agent steps, mean reward {np.mean(recent):.4f}")
            recent.clear()


if __name__ == "__main__":
    main()
