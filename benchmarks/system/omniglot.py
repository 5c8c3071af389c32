"""A supervised task against a plain PyTorch loop, and what its messages cost.

Tasks of the image experiment take seconds, where those of games take hours: claims, streams and
completions come often, and each completion is on disk before it is answered.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from benchmarks.system.config import OmniglotBench
from leap_rl.bench.machine import circumstances
from leap_rl.bench.statistics import estimate
from leap_rl.bench.stopwatch import Stopwatch
from leap_rl.compute.determinism import configure_torch
from leap_rl.meta.gradient_path import GradientPath
from leap_rl.meta.leap import Leap
from leap_rl.networks.classifier import make_classifier
from leap_rl.networks.parameters import Layout
from leap_rl.rl.config import AgentConfig
from leap_rl.storage.run_folder import RunFolder
from leap_rl.tasks.config import TaskConfig
from leap_rl.tasks.factory import ConfiguredTasks
from leap_rl.tasks.omniglot.config import CLASSES, OmniglotConfig
from leap_rl.tasks.omniglot.data import DRAWERS, SIDE
from leap_rl.tasks.omniglot.task import OmniglotTask
from leap_rl.tasks.task import Task, TaskSpec
from leap_rl.tracking.status import RunStatus
from leap_rl.training.interrupts import Interrupts
from leap_rl.training.rounds.meta_training import MetaTrainingFactory
from leap_rl.training.runtime.local import LocalLink
from leap_rl.training.runtime.ray.environment import LOCAL, make_ray_runtime
from leap_rl.training.runtime.run_spec import RunSpec
from leap_rl.training.server.open_round import LeasePolicy

UPDATES_A_BLOCK = 5
"""Few, so that a block and its neighbor see the same machine."""

LEAST_CYCLES = 6
BATCH = 4
"""Tasks of a meta-step in the measurement of messages."""

SPEC = TaskSpec(game="random", seed=0)
METHOD = Leap(p=1)


@dataclass(frozen=True)
class RandomImages:
    """Makes tasks of random images: how long they take does not depend on what they show."""

    config: OmniglotConfig

    @property
    def frames_per_agent_step(self) -> int:
        """There are no frames."""
        return 0

    def __call__(self, spec: TaskSpec) -> OmniglotTask:
        """Make a task."""
        shape = (CLASSES, DRAWERS, SIDE, SIDE)
        images = np.random.default_rng(0).integers(0, 256, shape, dtype=np.uint8)
        return OmniglotTask(spec, images=images, config=self.config)

    def check_machine(self) -> None:
        """Every machine will do."""

    def shared_layout(self) -> Layout:
        """Return the names and places of the shared parameters."""
        return self._real().shared_layout()

    def random_initialization(self, seed: int) -> Tensor:
        """Draw shared parameters, float32 [P]."""
        return self._real().random_initialization(seed)

    def _real(self) -> ConfiguredTasks:
        task = TaskConfig(kind="omniglot", omniglot=self.config)
        return ConfiguredTasks(task=task, agent=AgentConfig())


def measure(config: OmniglotBench, progress: Callable[[str], None]) -> dict[str, Any]:
    """Measure the loops, then the messages.

    Args:
        config: For how long, and the tasks' size.
        progress: Hears now and then what is going on.

    Returns:
        The metrics by name, all of them plain values.
    """
    configure_torch()
    omniglot = OmniglotConfig(updates=config.updates, batch_size=config.batch_size)
    progress(f"a task and a plain loop, in turns, for {config.seconds / 2:.0f} s")
    loops = _loops(RandomImages(omniglot), config.seconds / 2)
    tasks = max(1, round(config.seconds / 4 / (config.updates * loops["task_update_ms"] / 1e3)))
    meta_steps = -(-tasks // BATCH)
    metrics: dict[str, Any] = {"bench": "omniglot", **loops, "updates": config.updates}
    with tempfile.TemporaryDirectory(prefix="leap_rl-bench-") as folder:
        for kind, measured in (("local", _local_share), ("ray", _ray_share)):
            progress(f"{BATCH * meta_steps} tasks through the server, {kind}")
            run_spec = _run_spec(Path(folder) / kind, RandomImages(omniglot), meta_steps)
            metrics[f"{kind}_messages"] = measured(run_spec)
    return {**metrics, "batch_size": config.batch_size, **circumstances()}


class PlainLoop:
    """The loop that one would write: the network, torch's optimizer, nothing else."""

    def __init__(self, task: OmniglotTask) -> None:
        self._task = task
        self._network = make_classifier(CLASSES)
        self._network.load_state_dict(task.named_parameters())
        lr = task.config.lr
        self._optimizer = torch.optim.SGD(self._network.parameters(), lr=lr)
        self.errors: list[float] = []

    def update(self, number: int) -> None:
        """Learn from one batch."""
        images, labels = self._task.batch(number)
        logits = self._network(images)
        loss = F.cross_entropy(logits, labels)
        self.errors.append(float((logits.detach().argmax(dim=1) != labels).float().mean()))
        self._optimizer.zero_grad()
        torch.autograd.backward(loss)
        self._optimizer.step()

    @property
    def network(self) -> torch.nn.Module:
        """What has learned."""
        return self._network


def _loops(make: RandomImages, seconds: float) -> dict[str, Any]:
    # A task at its end validates with each update more, which no plain loop does.
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
        plain.update(0)  # each block starts with a path and an optimizer that are under way
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


def _run_spec(path: Path, make: RandomImages, meta_steps: int) -> RunSpec:
    policy = MetaTrainingFactory(
        seed=0,
        games=(SPEC.game,),
        batch_size=BATCH,
        meta_steps=meta_steps,
        meta_lr=0.1,
        optimizer="sgd",
        layout=make.shared_layout(),
        frames_per_agent_step=0,
        unit="examples",
    )
    policy.write_first_checkpoint(RunFolder(path), make.random_initialization(0))
    return RunSpec(
        run_dir=str(path),
        fingerprint="bench",
        method=METHOD,
        make_task=make,
        make_policy=policy,
        stream_every_s=2.0,
        snapshot_every_s=60.0,
        lease_policy=LeasePolicy(lease_s=60.0, max_attempts=1),
    )


def _local_share(run_spec: RunSpec) -> dict[str, float]:
    """Time the link's calls of one trainer, all in this process."""
    import pyarrow.parquet  # noqa: F401  what a round's first end would load, once in a run

    watch = Stopwatch(time.perf_counter_ns)
    server = run_spec.make_server()
    link = LocalLink(server, run_spec.make_schedule(), _ignore, Interrupts())
    for name in ("claim", "stream", "complete"):
        watch.wrap(link, name, name)
    started_s = time.perf_counter()
    run_spec.make_trainer(name="trainer-0", incarnation=1, link=link).run()
    whole_s = time.perf_counter() - started_s
    taken_s = {name: total / 1e9 for name, total in watch.totals_ns.items()}
    return {
        **{f"{name}_ms": 1e3 * taken_s[name] / watch.calls[name] for name in taken_s},
        "share": sum(taken_s.values()) / whole_s,
    }


def _ray_share(run_spec: RunSpec) -> dict[str, float]:
    """Take a lone trainer's own word for how long it waited; streams are not waited for."""
    make_ray_runtime(trainers=1, address=LOCAL).run(run_spec, _ignore)
    folder = RunFolder(run_spec.run_dir)
    latest = folder.latest()
    assert latest is not None
    rows = [row["values"] for i in range(1, latest + 1) for row in folder.read_state(i)["rows"]]
    waiting_s = sum(row["time/waiting_s"] for row in rows)
    working_s = sum(row["time/working_s"] for row in rows)
    return {
        "waiting_ms_a_task": 1e3 * waiting_s / (BATCH * latest),
        "share": waiting_s / (waiting_s + working_s),
    }


def _ignore(status: RunStatus) -> None:
    """Nobody looks."""


def table(metrics: Mapping[str, Any]) -> str:
    """Return the metrics as a table for people."""
    ratio, local = metrics["task_over_plain"], metrics["local_messages"]
    calls = ", ".join(f"{name} {value:.1f} ms" for name, value in local.items() if name != "share")
    ray = metrics["ray_messages"]
    return "\n".join(
        [
            f"{metrics['processor']}, {metrics['cores']} cores",
            "",
            f"  an update takes {metrics['task_update_ms']:.2f} ms in a task with Leap's path, "
            f"{metrics['plain_update_ms']:.2f} ms in a plain loop:",
            f"  {ratio['median']:.3f} ({ratio['low']:.3f} to {ratio['high']:.3f}) times its speed",
            f"  of tasks of {metrics['updates']} updates, messages are",
            f"  {local['share']:.2%} in one process ({calls})",
            f"  {ray['share']:.2%} on Ray ({ray['waiting_ms_a_task']:.1f} ms of waiting a task)",
        ]
    )
