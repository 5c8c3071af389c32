"""The real parameter server on Ray, fed by simulated trainers: up to a thousand on one machine.

This process sends the messages of all trainers: claims, streams of a contribution of the real size
at the run's interval, completes. Tasks differ in time as the pool's games do, but take seconds, not
hours. Some trainers die half-way, and their slots begin again. Snapshots are left out.
"""

from __future__ import annotations

import asyncio
import os
import tempfile
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.system.config import CrowdConfig
from leap_rl.bench.machine import MB, circumstances
from leap_rl.core.machine import cpu_s, descendants, resident_bytes
from leap_rl.runs.config import TrainConfig
from leap_rl.runs.creation import create_run, resolve
from leap_rl.runs.kinds import kind_of, make_tasks
from leap_rl.training import messages
from leap_rl.training.run_spec import RunSpec
from leap_rl.training.runtime.ray.environment import LOCAL, make_ray_runtime
from leap_rl.training.server.rounds import LeasePolicy

SLOWEST = 1.8
"""The slowest game's task over the fastest one's."""
DIES = 50
"""One of so many trainers dies half-way."""
SETTLED = 0.5
"""Part of the shortest task after which the server is measured, until that task ends."""


@dataclass(kw_only=True)
class Crowd:
    """Trainers as far as their server sees them, for one meta-step."""

    server: Any
    config: CrowdConfig
    trainers: int
    contribution: messages.FloatVector
    pace: float = 1.0
    streams: int = 0
    completed: int = 0
    last_complete_s: float = 0.0
    """When the last one was sent."""
    waits_s: list[float] = field(default_factory=list)
    """From then until a trainer has its next task, of each trainer."""

    async def play(self, index: int) -> None:
        """Be one trainer, until it has a task of the next meta-step."""
        claim = messages.Claim(trainer=f"trainer-{index}", incarnation=1, number=1)
        claim, work = await self._assigned(claim, await self.server.claim.remote(claim, False))
        opened = work.ticket.round
        task_s = self.config.seconds * (1 + (SLOWEST - 1) * index / self.trainers)
        if index % DIES == DIES - 1:
            await self._stream(work.ticket, index, task_s / 2)
            await self.server.trainer_lost.remote(claim.trainer, "it died")
            claim = replace(claim, incarnation=2)
            claim, work = await self._assigned(claim, await self.server.claim.remote(claim, False))
        while work.ticket.round == opened:  # the slot of a dead one may come after its own
            await self._stream(work.ticket, index, task_s)
            claim = replace(claim, number=claim.number + 1)
            self.completed += 1
            if self.completed == self.trainers:
                self.last_complete_s = time.monotonic()
            answer = await self.server.complete.remote(self._complete(work.ticket, claim, task_s))
            claim, work = await self._assigned(claim, answer.next)
        self.waits_s.append(time.monotonic() - self.last_complete_s)

    async def _assigned(
        self, claim: messages.Claim, work: messages.Work
    ) -> tuple[messages.Claim, messages.Assignment]:
        """Claim until there is a task."""
        while not isinstance(work, messages.Assignment):
            await self.server.await_work.remote()
            claim = replace(claim, number=claim.number + 1)
            work = await self.server.claim.remote(claim, False)
        return claim, work

    async def _stream(self, ticket: messages.Ticket, index: int, seconds: float) -> None:
        """Stream for a while, one message at a time on its way."""
        until_s, n = time.monotonic() + seconds, 0
        await asyncio.sleep(self.config.stream_every_s * index / self.trainers)
        while time.monotonic() < until_s:
            n += 1
            answer = await self.server.stream.remote(
                messages.Stream(
                    ticket=ticket,
                    n=n,
                    contribution=self.contribution,
                    progress=messages.TaskProgress(agent_steps=n, agent_steps_per_s=1.0),
                )
            )
            self.streams += 1
            self.pace = answer.pace
            wait_s = self.pace * self.config.stream_every_s
            await asyncio.sleep(max(0.0, min(wait_s, until_s - time.monotonic())))

    def _complete(
        self, ticket: messages.Ticket, claim: messages.Claim, task_s: float
    ) -> messages.Complete:
        none = np.empty(0)
        return messages.Complete(
            ticket=ticket,
            n=1_000_000,
            contribution=self.contribution,
            record=messages.TaskRecord(
                trainer=claim.trainer,
                processor="simulated",
                updates=1,
                agent_steps=1,
                working_s=task_s,
            ),
            episodes=messages.Episodes(
                agent_steps=none.astype(np.int64), returns=none, lengths=none.astype(np.int64)
            ),
            claim=claim,
        )

    async def supervise(self) -> None:
        """Be the driver."""
        while True:
            await self.server.supervise.remote()
            await asyncio.sleep(0.25)

    async def watch(self, process: int) -> dict[str, float]:
        """Return what the server does in a while, in which all trainers stream."""
        await asyncio.sleep(SETTLED * self.config.seconds)
        began_s, used_s, before = time.monotonic(), cpu_s([process]), self.streams
        await asyncio.sleep((1 - SETTLED) * self.config.seconds)
        took_s = time.monotonic() - began_s
        return {
            "messages_per_s": round((self.streams - before) / took_s, 1),
            "busy_share": round((cpu_s([process]) - used_s) / took_s, 3),
            "pace": round(self.pace, 1),
        }

    async def run(self, process: int) -> dict[str, float]:
        """Play a meta-step; return its metrics."""
        driver = asyncio.create_task(self.supervise())
        watching = asyncio.create_task(self.watch(process))
        await asyncio.gather(*(self.play(index) for index in range(self.trainers)))
        driver.cancel()
        return {
            "trainers": self.trainers,
            **await watching,
            "server_mb": round(resident_bytes([process]) / MB),
            "first_next_s": round(min(self.waits_s), 2),
            "all_next_s": round(max(self.waits_s), 2),
        }


def measure(config: CrowdConfig, progress: Callable[[str], None]) -> dict[str, Any]:
    """Measure the server with each number of trainers, a meta-step each.

    Args:
        config: The numbers of trainers, and for how long their tasks last.
        progress: Called now and then with what is going on.

    Returns:
        The metrics by name, all of them plain values; one of `loads` for each number of trainers.
    """
    loads, run = [], TrainConfig()
    size = make_tasks(resolve(run)).shared_layout().size
    for trainers in config.trainers:
        progress(f"{trainers} simulated trainers, on Ray")
        with tempfile.TemporaryDirectory(prefix="leap_rl-bench-") as folder:
            meta = replace(run.meta, batch_size=trainers, meta_steps=2)
            spec = run_spec_of(replace(run, run_dir=str(Path(folder) / "run"), meta=meta))
            loads.append(_play(spec, config, trainers, size))
    return {
        "bench": "crowd",
        "message_mb": round(4 * size / MB, 3),
        "stream_every_s": config.stream_every_s,
        "seconds": config.seconds,
        "loads": loads,
        **circumstances(),
    }


def run_spec_of(config: TrainConfig) -> RunSpec:
    """Make a run in its folder; return its parts."""
    run = create_run(resolve(config))
    kind = kind_of(run.config)
    return RunSpec(
        run_dir=str(run.folder.path),
        fingerprint=run.header.fingerprint,
        method=kind.method(run.config),
        make_task=make_tasks(run.config),
        make_plan=kind.plan(run.config),
        stream_every_s=run.config.runtime.stream_every_s,
        snapshot_every_s=run.config.runtime.snapshot_every_s,
        lease_policy=LeasePolicy(lease_s=600.0, max_attempts=3),
    )


def _play(spec: RunSpec, config: CrowdConfig, trainers: int, size: int) -> dict[str, float]:
    make_ray_runtime(trainers=1, address=LOCAL)  # which prepares Ray's environment
    import ray

    from leap_rl.training.runtime.ray.calls import actor
    from leap_rl.training.runtime.ray.runtime import LEAST_STORE_BYTES, cluster
    from leap_rl.training.runtime.ray.server_actor import ServerActor

    # One message of each is held, one on its way, and what is freed is freed late.
    room = max(LEAST_STORE_BYTES, 4 * trainers * 4 * size)
    with cluster(None, cores_wanted=1, object_store_bytes=room):
        server = actor(ServerActor, num_cpus=0).remote(spec)
        ray.get(server.supervise.remote())
        (process,) = (each for each in descendants(os.getpid()) if _is_server(each))
        contribution = np.random.default_rng(0).normal(size=size).astype(np.float32)
        crowd = Crowd(server=server, config=config, trainers=trainers, contribution=contribution)
        return asyncio.run(crowd.run(process))


def _is_server(process: int) -> bool:
    try:
        return "ray::ServerActor" in Path(f"/proc/{process}/cmdline").read_text()
    except OSError:  # it has gone
        return False


def table(metrics: Mapping[str, Any]) -> str:
    """Return the metrics as a table for people."""
    lines = [
        f"a contribution is {metrics['message_mb']:.2f} MB, streamed every "
        f"{metrics['stream_every_s']:g} s where the pace is 1",
        f"{metrics['processor']}, {metrics['cores']} cores",
        "",
        f"  {'trainers':>8}  {'pace':>5}  {'messages/s':>10}  {'server busy':>11}  "
        f"{'memory MB':>9}  {'next task s':>11}  {'of all s':>8}",
    ]
    lines += [
        f"  {load['trainers']:>8}  {load['pace']:>5.1f}  {load['messages_per_s']:>10,.0f}  "
        f"{load['busy_share']:>11.1%}  {load['server_mb']:>9,}  {load['first_next_s']:>11.2f}  "
        f"{load['all_next_s']:>8.2f}"
        for load in metrics["loads"]
    ]
    lines.append(
        "  next task: from the last complete until a trainer has its next; of all: until all"
    )
    return "\n".join(lines)
