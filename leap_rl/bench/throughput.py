"""``bench throughput``: how fast trainers learn, compared with bare emulators.

All trainers learn at the same time, each in its own process. Windows of four kinds alternate, so
that a drift of the machine's speed affects all of them:

* *agent*: learning without timers; its rate is the one that is reported first;
* *limit*: bare emulators with random actions and no screen, in as many processes as the trainers'
  emulators have;
* *peak*: matrix products of the layers' shapes, in every trainer's process;
* *split*: learning with timers on.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from functools import partial
from statistics import median
from typing import Any, Final

from leap_rl.bench.agent import PARTS, BenchAgent, Window, make_limit
from leap_rl.bench.config import ThroughputConfig
from leap_rl.bench.machine import Quiet, circumstances
from leap_rl.bench.roofline import Rate, roofline
from leap_rl.bench.worker_pool import WorkerPool
from leap_rl.core.choices import LossDifference
from leap_rl.core.machine import cpu_s, descendants
from leap_rl.learners.a2c.learner import A2C
from leap_rl.learners.registry import make_learner
from leap_rl.meta.gradient_path import Method
from leap_rl.meta.leap import Leap

ROUNDS = 5
"""Windows of each kind."""

WARM_UP_S = 2.0
"""Until kernels are compiled, caches are filled and memory is mapped."""

LEAP: Final = Leap()
"""The paper's choice: the energy of the path over the loss surface."""


def measure(
    config: ThroughputConfig,
    progress: Callable[[str], None],
    *,
    method: Method = LEAP,
    loss_difference: LossDifference = "next_batch",
) -> dict[str, Any]:
    """Measure the throughput of trainers that meta-train with `method`.

    Returns the metrics by name, plain values; `agent_steps_per_s` and `emulator_limit_per_s` are of
    all trainers together, `split_us` of one. `agent_steps_per_cpu_s` and `fraction_by_cpu_time`
    have the processes' own CPU time in place of the wall clock.

    Raises:
        ValueError: This machine lacks the device, or the units of the precision; or there is no
            such Gymnasium environment, or the encoder does not fit it; or who learns is not a2c.
        RunFailedError: A process died.
    """
    rates: dict[str, list[float]] = {"agent": [], "limit": []}
    cpu_rates: dict[str, list[float]] = {"agent": [], "limit": []}
    peaks: list[Rate] = []
    splits: list[dict[str, float]] = []
    tasks = make_learner(task=config.task, agent=config.agent)
    if not isinstance(tasks, A2C):
        raise ValueError(
            f"agent.algorithm = {config.agent.algorithm}: a2c alone is measured; `leap-rl plan` "
            "measures others"
        )
    tasks.check_machine()
    tasks.shared_layout()  # raises here, once, if the encoder does not fit
    trainers, game = config.trainers_counted, config.task.resolved_games[0]
    progress(f"starting {trainers} trainers on {game}")
    limits = WorkerPool(partial(make_limit, config), processes=trainers * config.env_processes)
    make_agent = partial(
        BenchAgent,
        config.task,
        config.agent,
        method=method,
        loss_difference=loss_difference,
        env_processes=config.env_processes,
    )
    agents = WorkerPool(make_agent, processes=trainers)
    with agents, limits:
        pools = {"agent": agents, "limit": limits}
        agents.call("run", min(WARM_UP_S, config.seconds))
        limits.call("run", min(WARM_UP_S, config.seconds) / 4)
        reports: list[dict[str, Any]] = agents.call("report")
        quiet, own_s = Quiet(), -_own_cpu_s()
        for number in range(ROUNDS):
            progress(f"measuring, round {number + 1} of {ROUNDS}")
            for kind, share in (("agent", 0.5), ("limit", 0.25)):
                windows: list[Window] = pools[kind].call("run", share * config.seconds / ROUNDS)
                rates[kind].append(sum(window.agent_steps_per_s for window in windows))
                agent_steps = sum(window.agent_steps for window in windows)
                cpu_rates[kind].append(agent_steps / sum(window.cpu_s for window in windows))
            peaks += agents.call("peak", 0.05 * config.seconds / ROUNDS)
            splits += agents.call("split", 0.2 * config.seconds / ROUNDS)
        others = quiet.others_share(own_s + _own_cpu_s())
    agent, limit = median(rates["agent"]), median(rates["limit"])
    cpu_agent, cpu_limit = median(cpu_rates["agent"]), median(cpu_rates["limit"])
    wall_peaks, cpu_peaks = zip(*peaks, strict=True)
    operations: float = reports[0]["operations"]
    # Means, so that the parts add up to the mean of the whole.
    split = {part: sum(one[part] for one in splits) / len(splits) for part in PARTS}
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
        **{name: reports[0][name] for name in ("encoder", "precision", "device")},
        "agent_steps_per_s": round(agent, 1),
        "agent_steps_per_cpu_s": round(cpu_agent, 1),
        "emulator_limit_per_s": round(limit, 1),
        "fraction_of_limit": round(agent / limit, 4),
        "fraction_by_cpu_time": round(cpu_agent / cpu_limit, 4),
        "roofline": roofline(agent / trainers, limit / trainers, wall_peaks, operations),
        "roofline_by_cpu_time": roofline(cpu_agent, cpu_limit, cpu_peaks, operations),
        "split_us": {part: round(value, 2) for part, value in split.items()},
        "agent_step_us": round(sum(split.values()), 2),
        "windows": {kind: [round(rate, 1) for rate in of] for kind, of in rates.items()},
        "resident_mb": round(max(report["resident_mb"] for report in reports), 1),
        "others_cpu_share": round(others, 4),
        "seconds": config.seconds,
        **circumstances(),
    }


def _own_cpu_s() -> float:
    """Return the CPU time so far of this process and all that it started."""
    return cpu_s([os.getpid(), *descendants(os.getpid())])


def table(metrics: Mapping[str, Any]) -> str:
    """Return the metrics as a table."""
    whole, processes = metrics["agent_step_us"], metrics["env_processes"]
    spread = f" over {processes} processes" if processes > 1 else ""
    preset = f"{metrics['atari']['preset']}, " if metrics["atari"] else ""
    bare = "emulator" if metrics["atari"] else "environment"
    bound = metrics["roofline"]
    lines = [
        f"{metrics['game']}, {metrics['trainers']} trainers, {metrics['envs']} environments "
        f"each{spread}, {preset}unroll {metrics['unroll']}, "
        f"{metrics['encoder']}, {metrics['precision']} on {metrics['device']}",
        f"{metrics['processor']}, {metrics['cores']} cores, "
        f"others used {metrics['others_cpu_share']:.1%} of the machine",
        "",
        f"  agent      {metrics['agent_steps_per_s']:>9,.0f} agent steps/s, learning",
        f"             {metrics['agent_steps_per_cpu_s']:>9,.0f} agent steps/s of CPU time",
        f"  {bare:<11}{metrics['emulator_limit_per_s']:>9,.0f} agent steps/s, bare: the limit",
        f"  fraction   {metrics['fraction_of_limit']:>9.3f} of the limit; "
        f"{metrics['fraction_by_cpu_time']:.3f} by CPU time",
        f"  roofline   {1e6 * metrics['trainers'] / bound['least_us']:>9,.0f} agent steps/s",
        f"  reached    {bound['fraction']:>9.3f} of the roofline; "
        f"{metrics['roofline_by_cpu_time']['fraction']:.3f} by CPU time",
        f"  memory     {metrics['resident_mb']:>9,.0f} MB resident, each trainer",
        "",
        "  an agent step of one trainer, in microseconds",
        *(
            f"  {part:<14} {value:>8.1f}  {value / whole:>6.1%}"
            for part, value in metrics["split_us"].items()
        ),
        f"  {'all':<14} {whole:>8.1f}",
        "",
        f"  the roofline's: {bound['emulator_us']:.1f} for the bare {bare}, and "
        f"{bound['products_us']:.1f} for {bound['operations'] / 1e6:.2f} million operations",
        f"  at {bound['gflops']:,.0f} a nanosecond, as this processor multiplies the layers' "
        "matrices at best",
    ]
    if processes > 1:
        lines += [
            "  emulation: until the environment processes have answered, preprocessing included",
            f"  the limit is that of bare emulators in {processes} processes for each trainer",
        ]
    return "\n".join(lines)
