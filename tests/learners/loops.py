"""Loops of one's own for tests: a short policy gradient, and what no such loop must do."""

from __future__ import annotations

import time
from typing import Any

import torch
from gymnasium.vector import AutoresetMode, SyncVectorEnv
from gymnasium.wrappers import RecordEpisodeStatistics
from torch import Tensor, nn

MODULE = __name__

B, T = 2, 8


class Odd(nn.Module):
    """An encoder whose parameters do not fill their places in the flat vector."""

    def __init__(self, length: int) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(length, 5), nn.Linear(5, 3)

    def forward(self, observations: Tensor) -> Tensor:
        return torch.tanh(self.second(torch.tanh(self.first(observations))))


def odd(observation_shape: tuple[int, ...]) -> Odd:
    return Odd(observation_shape[0])


SEEN: list[tuple[Tensor, Tensor, float]] = []
"""The encoder's parameters and gradients before each step, and its loss, in the last `learn`."""


def learn(
    make_env: Any,
    encoder: Any,
    budget: int,
    seed: int,
    report: Any,
    *,
    mode: str = "SAME_STEP",
    lr: float = 0.05,
    seeded: bool = True,
    explores: bool = False,
    pause_s: float = 0.0,
) -> nn.Module:
    """Learn by REINFORCE, without regard to where episodes end."""
    SEEN.clear()
    numbered = [lambda i=i: RecordEpisodeStatistics(make_env(i)) for i in range(B)]
    envs = SyncVectorEnv(numbered, autoreset_mode=AutoresetMode[mode])
    policy = nn.Linear(encoder.features, 2)
    optimizer = torch.optim.Adam([*encoder.parameters(), *policy.parameters()], lr=lr)
    loss = torch.zeros(())
    report.watch(optimizer, lambda: loss)
    steps = 0
    seen, _ = envs.reset(seed=seed) if seeded else envs.reset()
    while steps < budget:
        gains = []
        for _ in range(T):
            chosen = torch.distributions.Categorical(logits=policy(encoder(torch.tensor(seen))))
            actions = torch.tensor(envs.action_space.sample()) if explores else chosen.sample()
            seen, rewards, terminated, truncated, info = envs.step(actions.numpy())
            steps += B
            gains.append(chosen.log_prob(actions) * torch.tensor(rewards))
            for i in (terminated | truncated).nonzero()[0]:
                episode = info.get("final_info", info)["episode"]
                report(steps, episode["r"][i], episode["l"][i])
        loss = -torch.stack(gains).mean()
        optimizer.zero_grad()
        loss.backward()
        parts = list(encoder.parameters())
        values, grads = (
            torch.cat([p.reshape(-1) for p in of]).detach().clone()
            for of in (parts, [p.grad for p in parts])
        )
        SEEN.append((values, grads, loss.item()))
        optimizer.step()
        time.sleep(pause_s)
    return nn.Sequential(encoder, policy)


def learn_by_two(make_env: Any, encoder: Any, budget: int, seed: int, report: Any) -> None:
    """Step two layers by an optimizer each, and the second one last."""
    both = [torch.optim.SGD(part.parameters(), lr=0.1) for part in (encoder.first, encoder.second)]
    report.watch(both)
    env = make_env(0)
    seen, _ = env.reset(seed=seed)
    for _ in range(budget):
        seen, _, terminated, truncated, _ = env.step(0)
        if terminated or truncated:
            seen, _ = env.reset()
        loss = encoder(torch.tensor(seen)[None]).square().mean()
        for optimizer in both:
            optimizer.zero_grad()
        loss.backward()
        for optimizer in both:
            optimizer.step()


def play(make_env: Any, steps: int) -> None:
    env = make_env(0)
    env.reset()
    for _ in range(steps):
        if any(env.step(0)[2:4]):
            env.reset()


def step(encoder: Any, report: Any, loss: float = 0.0) -> None:
    optimizer = torch.optim.SGD(encoder.parameters(), lr=0.1)
    report.watch(optimizer, lambda: loss)
    for part in encoder.parameters():
        part.grad = torch.ones_like(part)
    optimizer.step()


def overruns(make_env: Any, encoder: Any, budget: int, seed: int, report: Any) -> None:
    play(make_env, budget + 1)


def underruns(make_env: Any, encoder: Any, budget: int, seed: int, report: Any) -> None:
    step(encoder, report)
    play(make_env, budget // 2)


def returns_a_number(make_env: Any, encoder: Any, budget: int, seed: int, report: Any) -> float:
    step(encoder, report)
    play(make_env, budget)
    return 3.0


def raises(make_env: Any, encoder: Any, budget: int, seed: int, report: Any) -> None:
    raise ZeroDivisionError("of\nits own")


def exits(make_env: Any, encoder: Any, budget: int, seed: int, report: Any) -> None:
    raise SystemExit(3)


def watches_nothing(make_env: Any, encoder: Any, budget: int, seed: int, report: Any) -> None:
    play(make_env, budget)


def watches_another(make_env: Any, encoder: Any, budget: int, seed: int, report: Any) -> None:
    report.watch(torch.optim.SGD(nn.Linear(2, 2).parameters()))


def watches_twice(make_env: Any, encoder: Any, budget: int, seed: int, report: Any) -> None:
    step(encoder, report)
    step(encoder, report)


def draws_again(make_env: Any, encoder: Any, budget: int, seed: int, report: Any) -> None:
    for part in encoder.parameters():
        nn.init.normal_(part)
    step(encoder, report)


def counts_frames(make_env: Any, encoder: Any, budget: int, seed: int, report: Any) -> None:
    play(make_env, 10)
    report(40, 1.0, 10)


def tells_beyond(make_env: Any, encoder: Any, budget: int, seed: int, report: Any) -> None:
    play(make_env, 10)
    report(budget + 1, 1.0, 10)


def goes_back(make_env: Any, encoder: Any, budget: int, seed: int, report: Any) -> None:
    play(make_env, 10)
    report(10, 1.0, 5)
    report(5, 1.0, 5)


def tells_nan(make_env: Any, encoder: Any, budget: int, seed: int, report: Any) -> None:
    play(make_env, 10)
    report(10, float("nan"), 5)


def diverges(make_env: Any, encoder: Any, budget: int, seed: int, report: Any) -> None:
    step(encoder, report, loss=float("nan"))


def tells_too_much(make_env: Any, encoder: Any, budget: int, seed: int, report: Any) -> None:
    play(make_env, 10)
    report(10, 1e308, 5)


class MuteError(Exception):
    """One that cannot be said."""

    def __str__(self) -> str:
        raise RuntimeError


def raises_what_cannot_be_said(
    make_env: Any, encoder: Any, budget: int, seed: int, report: Any
) -> None:
    raise MuteError


def too_few(make_env: Any, encoder: Any, budget: int) -> None:
    """Take no seed and no report."""
