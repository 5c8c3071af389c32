"""Leap around a training loop of one's own, with any torch optimizer: sine waves, learned by Adam.

python examples/leap_own_loop.py
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn.utils import parameters_to_vector, vector_to_parameters

from leap_rl.meta import Leap, NoMethod
from leap_rl.meta.gradient_path import GradientPath

Batch = Callable[[], tuple[Tensor, Tensor]]


def sine_wave(generator: torch.Generator) -> Batch:
    """Draw a task: returns what draws its batches."""
    amplitude, phase = torch.rand(2, generator=generator)

    def batch() -> tuple[Tensor, Tensor]:
        x = torch.rand(64, 1, generator=generator) * 10 - 5
        return x, (0.1 + 4.9 * amplitude) * torch.sin(x + math.pi * phase)

    return batch


def make_encoder() -> nn.Sequential:
    """Return what the tasks share."""
    return nn.Sequential(nn.Linear(1, 64), nn.Tanh(), nn.Linear(64, 64), nn.Tanh())


def learn(theta0: Tensor, batch: Batch, path: GradientPath, updates: int = 50) -> float:
    """Learn a task from theta0, observed by `path`; returns the loss of a new batch at the end."""
    encoder, head = make_encoder(), nn.Linear(64, 1)
    vector_to_parameters(theta0.clone(), encoder.parameters())
    optimizer = torch.optim.Adam([*encoder.parameters(), *head.parameters()], lr=0.003)
    with path.watch(optimizer, encoder, lambda: loss):
        for _ in range(updates):
            x, y = batch()
            loss = (head(encoder(x)) - y).square().mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        x, y = batch()
        loss = (head(encoder(x)) - y).square().mean()  # at the end, not stepped on
    return loss.item()


def options() -> argparse.ArgumentParser:
    """Return the options."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--meta_steps", type=int, default=60)
    return parser


def main(meta_steps: int) -> tuple[float, float]:
    """Meta-train; returns the mean loss of new tasks from a random and from the learned start."""
    torch.manual_seed(0)
    generator = torch.Generator().manual_seed(0)
    random = parameters_to_vector(make_encoder().parameters()).detach()
    theta0 = random.clone()
    method = Leap(metric="optimizer", task_unit=True)
    for _ in range(meta_steps):
        contributions = []
        for _ in range(4):
            path = method.start(theta0)
            learn(theta0, sine_wave(generator), path)
            contributions.append(path.gradient())
        theta0 = theta0 - 0.3 * torch.stack(contributions).mean(0)
    losses = []
    for start in (random, theta0):
        torch.manual_seed(1)
        tasks = torch.Generator().manual_seed(1)
        each = [learn(start, sine_wave(tasks), NoMethod().start(start)) for _ in range(20)]
        losses.append(sum(each) / len(each))
    print(f"mean loss after 50 updates: from random {losses[0]:.3f}, from Leap's {losses[1]:.3f}")
    return losses[0], losses[1]


if __name__ == "__main__":
    main(options().parse_args().meta_steps)
