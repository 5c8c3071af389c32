"""What the parameter server takes in a second, on Ray, with the real runtime.

Server and trainers are the run's own; the tasks compute nothing, hold a contribution of the real
size, and are asked for it after every "update" of a millisecond. A trainer has one stream on the
way at a time, so this is as fast as the protocol goes. A run streams every two seconds.
"""

from __future__ import annotations

import json
import math
import tempfile
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any, cast

from leap_rl.learners.registry import make_learner

from benchmarks.system.config import ServerConfig
from benchmarks.system.streaming import LOG, CountedRunSpec, OneRound, StreamingTasks
from leap_rl.bench.machine import MB, circumstances
from leap_rl.meta.gradient_path import NoMethod
from leap_rl.storage.run_folder import RunFolder
from leap_rl.tasks.config import TaskConfig
from leap_rl.training.runtime.ray.environment import LOCAL, make_ray_runtime
from leap_rl.training.server.open_round import LeasePolicy

FLOAT32_BYTES = 4

Stream = tuple[int, float, float]
"""Slot, when it came (monotonic seconds), and seconds to take it in."""


def measure(config: ServerConfig, progress: Callable[[str], None]) -> dict[str, Any]:
    """Measure the parameter server with each number of trainers.

    Args:
        config: The numbers of trainers, and for how long each is measured.
        progress: Called now and then with what is going on.

    Returns:
        The metrics by name, all of them plain values; one of `loads` for each number of trainers.
    """
    layout = make_learner(task=TaskConfig(), agent=config.agent).shared_layout()
    loads = []
    for trainers in config.trainers:
        progress(f"streaming from {trainers} trainers for {config.seconds:.0f} s, on Ray")
        with tempfile.TemporaryDirectory(prefix="leap_rl-bench-") as folder:
            gathering = Path(folder) / "gathering"
            gathering.mkdir()
            tasks = StreamingTasks(
                gathering=gathering, together=trainers, seconds=config.seconds, size=layout.size
            )
            log = _run(tasks, Path(folder) / "run")
        loads.append(_metrics(log, trainers=trainers, message_mb=FLOAT32_BYTES * layout.size / MB))
    return {
        "bench": "server",
        "encoder": config.agent.encoder,
        "parameters": layout.size,
        "message_mb": round(FLOAT32_BYTES * layout.size / MB, 3),
        "loads": loads,
        "seconds": config.seconds,
        **circumstances(),
    }


def _run(tasks: StreamingTasks, path: Path) -> dict[str, Any]:
    """Run streaming tasks, and return its server's log."""
    RunFolder(path).write_checkpoint(0, {}, {})
    run_spec = CountedRunSpec(
        run_dir=str(path),
        fingerprint="bench",
        method=NoMethod(),
        make_task=cast(Any, tasks),
        make_policy=partial(make_policy, trainers=tasks.together, size=tasks.size),
        stream_every_s=0.0,
        snapshot_every_s=math.inf,
        lease_policy=LeasePolicy(lease_s=60.0, max_attempts=1),
    )
    make_ray_runtime(trainers=tasks.together, address=LOCAL).run(run_spec, lambda status: None)
    log: dict[str, Any] = json.loads((path / LOG).read_text())
    return log


def make_policy(folder: RunFolder, *, trainers: int, size: int) -> OneRound:
    """Make the round; it needs nothing of the folder."""
    return OneRound(trainers, size)


def _metrics(log: Mapping[str, Any], *, trainers: int, message_mb: float) -> dict[str, Any]:
    streams: list[Stream] = [tuple(stream) for stream in log["streams"]]
    start_s, end_s = common_window(streams, trainers)
    counted = [taken_s for _, came_s, taken_s in streams if start_s <= came_s < end_s]
    rate = len(counted) / (end_s - start_s)
    return {
        "trainers": trainers,
        "messages_per_s": round(rate, 1),
        "mb_per_s": round(rate * message_mb, 1),
        "server_us_a_message": round(1e6 * median(counted), 1),
        "server_busy_share": round(sum(counted) / (end_s - start_s), 4),
        "complete_ms": round(1e3 * median(log["completes_s"]), 2),
        "trainer_wait_ms": round(1e3 * median(log["waits_s"]), 2),
    }


def common_window(streams: Sequence[Stream], trainers: int) -> tuple[float, float]:
    """Return when the last of the streaming tasks had begun to stream, and when the first ended.

    Args:
        streams: What the server was sent; slots 0 to `trainers` - 1 are those of the tasks.
        trainers: How many tasks streamed at the same time.
    """
    times: dict[int, list[float]] = {slot: [] for slot in range(trainers)}
    for slot, came_s, _ in streams:
        if slot in times:
            times[slot].append(came_s)
    return max(of[0] for of in times.values()), min(of[-1] for of in times.values())


def table(metrics: Mapping[str, Any]) -> str:
    """Return the metrics as a table for people."""
    lines = [
        f"a contribution is {metrics['message_mb']:.2f} MB ({metrics['parameters']:,} parameters, "
        f"{metrics['encoder']})",
        f"{metrics['processor']}, {metrics['cores']} cores; {metrics['seconds']:.0f} s each",
        "",
        f"  {'trainers':>8}  {'messages/s':>10}  {'MB/s':>7}  {'server us a message':>19}  "
        f"{'server busy':>11}  {'complete ms':>11}  {'trainer waits ms':>16}",
    ]
    lines += [
        f"  {load['trainers']:>8}  {load['messages_per_s']:>10,.0f}  {load['mb_per_s']:>7,.0f}  "
        f"{load['server_us_a_message']:>19,.0f}  {load['server_busy_share']:>11.1%}  "
        f"{load['complete_ms']:>11,.1f}  {load['trainer_wait_ms']:>16,.1f}"
        for load in metrics["loads"]
    ]
    lines.append("  complete: taken in and on disk; trainer waits: until it has its next task")
    return "\n".join(lines)
