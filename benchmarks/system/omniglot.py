"""Compares a supervised task with a plain PyTorch loop."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from benchmarks.harness.medians import estimate
from benchmarks.system.config import OmniglotBench
from leap_rl.bench.machine import circumstances
from leap_rl.core.determinism import configure_torch
from leap_rl.learners.classifier.classifier import make_classifier
from leap_rl.learners.classifier.task import OmniglotTask
from leap_rl.learners.config import AgentConfig, ClassifierConfig
from leap_rl.learners.registry import make_learner
from leap_rl.learners.task import Task, TaskSpec
from leap_rl.meta.gradient_path import GradientPath
from leap_rl.meta.leap import Leap
from leap_rl.tasks.config import TaskConfig
from leap_rl.tasks.images.config import CLASSES, OmniglotConfig
from leap_rl.tasks.images.data import DRAWERS, SIDE

UPDATES_A_BLOCK = 5
"""Few, so that a block and its neighbor see the same machine."""

LEAST_CYCLES = 6
SPEC = TaskSpec(game="random", seed=0)
METHOD = Leap(p=1)


@dataclass(frozen=True)
class RandomImages:
    """Makes tasks of random images, whose content does not change their speed."""

    config: OmniglotConfig

    def __call__(self, spec: TaskSpec) -> OmniglotTask:
        """Make a task."""
        shape = (CLASSES, DRAWERS, SIDE, SIDE)
        images = np.random.default_rng(0).integers(0, 256, shape, dtype=np.uint8)
        return OmniglotTask(
            spec,
            images=images,
            updates=self.config.updates,
            batch_size=self.config.batch_size,
            config=ClassifierConfig(),
        )

    def random_initialization(self, seed: int) -> Tensor:
        """Draw shared parameters, float32 [P]."""
        task = TaskConfig(kind="omniglot", omniglot=self.config)
        tasks = make_learner(task=task, agent=AgentConfig())
        return tasks.random_initialization(seed)


def measure(config: OmniglotBench, progress: Callable[[str], None]) -> dict[str, Any]:
    """Measure the loops.

    Args:
        config: For how long, and the tasks' size.
        progress: Called with a message now and then.

    Returns:
        The metrics by name, all of them plain values.
    """
    configure_torch()
    omniglot = OmniglotConfig(updates=config.updates, batch_size=config.batch_size)
    progress(f"a task and a plain loop, in turns, for {config.seconds:.0f} s")
    loops = _loops(RandomImages(omniglot), config.seconds)
    sizes = {"updates": config.updates, "batch_size": config.batch_size}
    return {"bench": "omniglot", **loops, **sizes, **circumstances()}


class PlainLoop:
    """A plain training loop: the network and torch's optimizer, nothing else."""

    def __init__(self, task: OmniglotTask) -> None:
        self._task = task
        self.network = make_classifier(CLASSES)
        self.network.load_state_dict(task.named_parameters())
        lr = task.config.lr
        self._optimizer = torch.optim.SGD(self.network.parameters(), lr=lr)
        self.errors: list[float] = []

    def update(self, number: int) -> None:
        """Learn from one batch."""
        images, labels = self._task.batch(number)
        logits = self.network(images)
        loss = F.cross_entropy(logits, labels)
        self.errors.append(float((logits.detach().argmax(dim=1) != labels).float().mean()))
        self._optimizer.zero_grad()
        torch.autograd.backward(loss)
        self._optimizer.step()


def _loops(make: RandomImages, seconds: float) -> dict[str, Any]:
    # A task at its end also validates, which the plain loop does not.
    updates = max(make.config.updates, UPDATES_A_BLOCK + 2)
    make = replace(make, config=replace(make.config, updates=updates))
    theta0 = make.random_initialization(0)
    until_s = time.perf_counter() + seconds
    plain_s: list[float] = []
    task_s: list[float] = []
    while len(task_s) < LEAST_CYCLES or time.perf_counter() < until_s:
        task = make(SPEC)
        task.start(theta0)
        plain, path = PlainLoop(task), METHOD.start(theta0, borrow=True)
        plain.update(0)  # so that path and optimizer have state when a block starts
        task.advance(path.visit)
        order = (_time_plain, _time_task) if len(task_s) % 2 else (_time_task, _time_plain)
        for one in order:
            (plain_s if one is _time_plain else task_s).append(one(plain, task, path))
    ratios = [plain / ours for plain, ours in zip(plain_s, task_s, strict=True)]
    return {
        "plain_update_ms": 1e3 * estimate(plain_s).median / UPDATES_A_BLOCK,
        "task_update_ms": 1e3 * estimate(task_s).median / UPDATES_A_BLOCK,
        "task_over_plain": estimate(ratios)._asdict(),
    }


def _time_plain(plain: PlainLoop, task: OmniglotTask, path: GradientPath) -> float:
    started_s = time.thread_time()
    for number in range(1, UPDATES_A_BLOCK + 1):
        plain.update(number)
    return time.thread_time() - started_s


def _time_task(plain: PlainLoop, task: Task, path: GradientPath) -> float:
    started_s = time.thread_time()
    for _ in range(UPDATES_A_BLOCK):
        task.advance(path.visit)
    return time.thread_time() - started_s


def table(metrics: Mapping[str, Any]) -> str:
    """Return the metrics as a table for people."""
    ratio = metrics["task_over_plain"]
    return "\n".join(
        [
            f"{metrics['processor']}, {metrics['cores']} cores",
            "",
            f"  an update takes {metrics['task_update_ms']:.2f} ms in a task with Leap's path, "
            f"{metrics['plain_update_ms']:.2f} ms in a plain loop:",
            f"  {ratio['median']:.3f} ({ratio['low']:.3f} to {ratio['high']:.3f}) times its speed",
        ]
    )
