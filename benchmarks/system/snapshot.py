"""How large a task's snapshot is, and what it costs to take, keep and restore it.

A trainer takes one every so many seconds and the server writes it to disk; one is restored only
when a task was lost. Times are CPU times, so that others on the machine hardly count; the write has
the wall clock too, since it waits for the disk.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Mapping
from statistics import median
from typing import Any

from leap_rl.learners.registry import make_learner

from benchmarks.system.config import SnapshotConfig
from leap_rl.bench.agent import BenchAgent
from leap_rl.bench.machine import MB, Quiet, circumstances
from leap_rl.core.determinism import configure_torch
from leap_rl.learners.hardware import check_machine
from leap_rl.learners.task import TaskSpec
from leap_rl.meta.leap import Leap
from leap_rl.storage.run_folder import RunFolder
from leap_rl.training.config import RuntimeConfig
from leap_rl.training.server.slot_files import SlotFiles, SlotSnapshot
from leap_rl.training.trainer.recorder import TaskRecorder
from leap_rl.training.trainer.snapshot import restore_snapshot, take_snapshot

WARM_UP_UPDATES = 8
LEAST_REPEATS = 3
EVERY_S = RuntimeConfig().snapshot_every_s


class Clock:
    """CPU and wall-clock milliseconds of one thing, again and again."""

    def __init__(self) -> None:
        self.cpu_ms: list[float] = []
        self.wall_ms: list[float] = []

    def __enter__(self) -> None:
        self._started = time.process_time(), time.perf_counter()

    def __exit__(self, *error: object) -> None:
        cpu_s, wall_s = self._started
        self.cpu_ms.append(1e3 * (time.process_time() - cpu_s))
        self.wall_ms.append(1e3 * (time.perf_counter() - wall_s))


def measure(config: SnapshotConfig, progress: Callable[[str], None]) -> dict[str, Any]:
    """Measure the snapshots of an agent that learns.

    Args:
        config: Which agent, and for how long.
        progress: Called now and then with what is going on.

    Returns:
        The metrics by name, all of them plain values.

    Raises:
        ValueError: This machine lacks the device, or the units of the precision.
    """
    check_machine(config.agent)
    configure_torch()
    agent = BenchAgent(config.task, config.agent, method=Leap())
    agent.run_updates(WARM_UP_UPDATES)
    recorder = TaskRecorder(config.task.agent_steps)
    spec = TaskSpec(game=config.task.resolved_games[0], seed=0)
    taking, writing, restoring = Clock(), Clock(), Clock()
    quiet, own_s = Quiet(), -time.process_time()
    until_s = time.monotonic() + config.seconds
    progress(f"measuring on {config.game} for {config.seconds:.0f} s")
    with tempfile.TemporaryDirectory(prefix="leap_rl-") as folder:
        run = RunFolder(folder)
        files = SlotFiles(run.slot(0, 0), spec, "bench", folder=run)
        while len(taking.cpu_ms) < LEAST_REPEATS or time.monotonic() < until_s:
            agent.run_updates(1)
            with taking:
                snapshot = take_snapshot(agent.task, agent.path, recorder)
            contribution = agent.path.gradient().cpu().numpy()
            with writing:
                files.write_snapshot(
                    SlotSnapshot(restarts=0, n=1, contribution=contribution, snapshot=snapshot)
                )
        for _ in range(LEAST_REPEATS):
            fresh = make_learner(task=config.task, agent=config.agent)(spec)
            path = Leap().start(agent.path_start.clone())
            with restoring:
                restore_snapshot(snapshot, fresh, path, TaskRecorder(config.task.agent_steps))
            fresh.close()
    own_s += time.process_time()
    take_ms = median(taking.cpu_ms)
    return {
        "bench": "snapshot",
        "game": spec.game,
        "envs": config.envs,
        "atari": config.atari_resolved,
        "encoder": config.agent.encoder,
        "snapshot_mb": round(len(snapshot) / MB, 2),
        "take_ms": round(take_ms, 1),
        "write_ms": round(median(writing.cpu_ms), 1),
        "write_wall_ms": round(median(writing.wall_ms), 1),
        "restore_ms": round(median(restoring.cpu_ms), 1),
        "every_s": EVERY_S,
        "share_of_trainer": round(take_ms / 1e3 / EVERY_S, 5),
        "snapshots": len(taking.cpu_ms),
        "others_cpu_share": round(quiet.others_share(own_s), 4),
        "seconds": config.seconds,
        **circumstances(),
    }


def table(metrics: Mapping[str, Any]) -> str:
    """Return the metrics as a table for people."""
    return "\n".join(
        [
            f"{metrics['game']}, {metrics['envs']} environments, {metrics['encoder']}",
            f"{metrics['processor']}, others used {metrics['others_cpu_share']:.1%} of the machine",
            "",
            f"  snapshot  {metrics['snapshot_mb']:>8.1f} MB",
            f"  take      {metrics['take_ms']:>8.1f} ms of a trainer, "
            f"{metrics['share_of_trainer']:.2%} of it at one every {metrics['every_s']:.0f} s",
            f"  write     {metrics['write_ms']:>8.1f} ms of the server, "
            f"{metrics['write_wall_ms']:.1f} ms with the disk",
            f"  restore   {metrics['restore_ms']:>8.1f} ms of whoever takes the task over",
        ]
    )
