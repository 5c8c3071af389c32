"""``bench throughput``: how fast trainers learn, against the one limit that nobody can pass.

All trainers work at the same time, each in a process of its own. Windows of three kinds take turns,
so that a change in the machine's mood meets all of them:

* *agent*: the real thing, without timers, which gives the headline figure;
* *limit*: as many bare emulators, random actions, no screen, in the trainers' own processes; where
  a trainer spreads its emulators over several processes, in as many again beside them;
* *split*: the real thing with timers on.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from statistics import median
from typing import Any, Final

from leap_rl.bench.agent import (
    PARTS,
    BareEmulators,
    BareEnvironments,
    BenchAgent,
    Window,
    together,
)
from leap_rl.bench.config import ThroughputConfig
from leap_rl.bench.machine import Quiet, circumstances, cpu_s_of, resident_mb_of
from leap_rl.bench.worker_pool import WorkerPool
from leap_rl.meta.gradient_path import Method
from leap_rl.meta.leap import Leap
from leap_rl.tasks.config import LossDifference
from leap_rl.tasks.factory import ConfiguredTasks

ROUNDS = 5
"""Windows of each kind."""

WARM_UP_S = 2.0
"""For compiled kernels, caches of shapes, the first page faults."""

LEAP: Final = Leap()
"""The paper's choice: the energy of the path over the loss surface."""

Progress = Callable[[str], None]


@dataclass(frozen=True, kw_only=True, slots=True)
class WorkerReport:
    """What a process says of itself."""

    circumstances: Mapping[str, Any]
    encoder: str
    precision: str
    device: str
    resident_mb: float


class Worker:
    """One trainer's process, with those that its emulators are in."""

    def __init__(
        self,
        config: ThroughputConfig,
        method: Method,
        loss_difference: LossDifference,
        index: int,
    ) -> None:
        self._agent = BenchAgent(
            config.task,
            config.agent,
            method=method,
            loss_difference=loss_difference,
            env_processes=config.env_processes,
            seed=index,
        )
        self._agent.run(min(WARM_UP_S, config.seconds))
        # A trainer's memory is the agent's, without the emulators of the limit.
        self._resident_mb = resident_mb_of([os.getpid(), *self._agent.env_processes])
        self._bare = _BareElsewhere(config) if config.env_processes > 1 else _bare(config, 0)
        self._bare.run(min(WARM_UP_S, config.seconds) / 4)

    def agent(self, seconds: float) -> Window:
        """Learn."""
        return self._agent.run(seconds)

    def limit(self, seconds: float) -> Window:
        """Step the bare emulators."""
        return self._bare.run(seconds)

    def split(self, seconds: float) -> dict[str, float]:
        """Learn with timers on."""
        return self._agent.split(seconds)

    def cpu_s(self) -> float:
        """Return the CPU time so far of this process and those that its emulators are in."""
        return self._agent.cpu_s() + self._bare.others_cpu_s()

    def report(self) -> WorkerReport:
        """Say what was measured, and on what."""
        resolved = self._agent.task.learner.config
        return WorkerReport(
            circumstances=circumstances(),
            encoder=resolved.encoder,
            precision=resolved.precision,
            device=resolved.device,
            resident_mb=self._resident_mb,
        )


def _bare(config: ThroughputConfig, index: int) -> BareEmulators | BareEnvironments:
    """Make one process's share of a trainer's bare emulators, or environments."""
    shared, processes = config.envs, config.env_processes
    count = shared * (index + 1) // processes - shared * index // processes
    if config.task.kind == "gymnasium":
        return BareEnvironments(replace(config.task, num_envs=count))
    (game,) = config.task.resolved_games
    return BareEmulators(game, count=count, settings=config.atari.settings)


class _BareElsewhere:
    """A trainer's bare emulators in processes of their own."""

    def __init__(self, config: ThroughputConfig) -> None:
        pool = WorkerPool(partial(_bare, config), processes=config.env_processes)
        self._crew = pool.__enter__()  # its processes are daemons and end with this one

    def run(self, seconds: float) -> Window:
        """Step for so long in all of them."""
        return together(self._crew.call("run", seconds))

    def others_cpu_s(self) -> float:
        """Return the CPU time of the other processes so far."""
        return cpu_s_of(self._crew.pids)


def measure(
    config: ThroughputConfig,
    progress: Progress,
    *,
    method: Method = LEAP,
    loss_difference: LossDifference = "next_batch",
) -> dict[str, Any]:
    """Measure the throughput of trainers.

    Args:
        config: Which, and for how long.
        progress: Called with a message now and then.
        method: What watches the agents' gradient paths.
        loss_difference: Whether agents compute each batch's loss after the update too.

    Returns:
        The metrics by name, all of them plain values; `agent_steps_per_s` and
        `emulator_limit_per_s` are of all trainers together, `split_us` of one.
        `fraction_by_cpu_time` is for machines that others use too: both rates are taken by the
        trainers' own CPU time, that of their environment processes included, instead of the wall
        clock.

    Raises:
        ValueError: This machine lacks the device, or the units of the precision; or there is no
            such Gymnasium environment, or the encoder does not fit it.
        RunFailedError: A process died.
    """
    rates: dict[str, list[float]] = {"agent": [], "limit": []}
    cpu_rates: dict[str, list[float]] = {"agent": [], "limit": []}
    splits: list[dict[str, float]] = []
    tasks = ConfiguredTasks(task=config.task, agent=config.agent)
    tasks.check_machine()
    tasks.shared_layout()  # an encoder that does not fit is told here, and not by each process
    trainers, game = config.trainers_counted, config.task.resolved_games[0]
    progress(f"starting {trainers} trainers on {game}")
    make_worker = partial(Worker, config, method, loss_difference)
    with WorkerPool(make_worker, processes=trainers, parents=config.env_processes > 1) as pool:
        reports: list[WorkerReport] = pool.call("report")
        quiet, own_s = Quiet(), -time.process_time() - sum(pool.call("cpu_s"))
        for number in range(ROUNDS):
            progress(f"measuring, round {number + 1} of {ROUNDS}")
            for kind, share in (("agent", 0.5), ("limit", 0.25)):
                windows: list[Window] = pool.call(kind, share * config.seconds / ROUNDS)
                rates[kind].append(sum(window.agent_steps_per_s for window in windows))
                cpu_rates[kind].append(sum(window.agent_steps_per_cpu_s for window in windows))
            splits += pool.call("split", 0.25 * config.seconds / ROUNDS)
        own_s += time.process_time() + sum(pool.call("cpu_s"))
        others = quiet.others_share(own_s)
    agent, limit = median(rates["agent"]), median(rates["limit"])
    split = mean_split(splits)
    return {
        "bench": "throughput",
        "game": game,
        "trainers": trainers,
        "env_processes": config.env_processes,
        "envs": config.envs,
        "unroll": config.unroll,
        "atari": config.atari_resolved,
        "method": method.name,
        "loss_difference": loss_difference,
        "encoder": reports[0].encoder,
        "precision": reports[0].precision,
        "device": reports[0].device,
        "agent_steps_per_s": round(agent, 1),
        "emulator_limit_per_s": round(limit, 1),
        "fraction_of_limit": round(agent / limit, 4),
        "fraction_by_cpu_time": round(median(cpu_rates["agent"]) / median(cpu_rates["limit"]), 4),
        "split_us": {part: round(value, 2) for part, value in split.items()},
        "agent_step_us": round(sum(split.values()), 2),
        "windows": {kind: [round(rate, 1) for rate in of] for kind, of in rates.items()},
        "resident_mb": round(max(report.resident_mb for report in reports), 1),
        "others_cpu_share": round(others, 4),
        "seconds": config.seconds,
        **reports[0].circumstances,
    }


def mean_split(splits: Sequence[Mapping[str, float]]) -> dict[str, float]:
    """Return the mean of each part, so that the parts still add up to the mean of the whole."""
    return {part: sum(split[part] for split in splits) / len(splits) for part in PARTS}


def table(metrics: Mapping[str, Any]) -> str:
    """Return the metrics as a table for people."""
    whole, processes = metrics["agent_step_us"], metrics["env_processes"]
    spread = f" over {processes} processes" if processes > 1 else ""
    preset = f"{metrics['atari']['preset']}, " if metrics["atari"] else ""
    bare = "emulator" if metrics["atari"] else "environment"
    lines = [
        f"{metrics['game']}, {metrics['trainers']} trainers, {metrics['envs']} environments "
        f"each{spread}, {preset}unroll {metrics['unroll']}, "
        f"{metrics['encoder']}, {metrics['precision']}",
        f"{metrics['processor']}, {metrics['cores']} cores, "
        f"others used {metrics['others_cpu_share']:.1%} of the machine",
        "",
        f"  agent      {metrics['agent_steps_per_s']:>9,.0f} agent steps/s, learning",
        f"  {bare:<11}{metrics['emulator_limit_per_s']:>9,.0f} agent steps/s, bare: the limit",
        f"  fraction   {metrics['fraction_of_limit']:>9.3f} of the limit; "
        f"{metrics['fraction_by_cpu_time']:.3f} by CPU time",
        f"  memory     {metrics['resident_mb']:>9,.0f} MB resident, each trainer",
        "",
        "  an agent step of one trainer, in microseconds",
        *(
            f"  {part:<14} {value:>8.1f}  {value / whole:>6.1%}"
            for part, value in metrics["split_us"].items()
        ),
        f"  {'all':<14} {whole:>8.1f}",
    ]
    if processes > 1:
        lines += [
            "  emulation: until the environment processes have answered, preprocessing included",
            f"  the limit is that of bare emulators in {processes} processes for each trainer",
        ]
    return "\n".join(lines)
