"""Measures the cost of Leap's sums in an agent.

One agent, five kinds of blocks in turns: without sums, and with those of the energy (p = 2) and of
the length (p = 1), in the Euclidean metric and in the optimizer's. A block begins a path of its own
where the parameters are, so that all kinds observe the same agent.

One cost of Leap is in blocks of all kinds and not counted: RMSProp sums the squares of its steps,
which are the lengths of Leap's segments. `benchmarks/hot_loop.py` measures that.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from statistics import median
from typing import Any, Final

from benchmarks.harness.medians import estimate
from benchmarks.system.config import OverheadConfig
from leap_rl.bench.agent import BenchAgent, Stopwatch, Window
from leap_rl.bench.machine import Quiet, circumstances
from leap_rl.core.determinism import configure_torch
from leap_rl.learners.hardware import check_machine
from leap_rl.meta.gradient_path import Method, NoMethod
from leap_rl.meta.leap import Leap

KINDS: Final[dict[str, Method]] = {
    "none": NoMethod(),
    "energy": Leap(p=2),
    "length": Leap(p=1),
    "energy, optimizer": Leap(p=2, metric="optimizer", task_unit=True),
    "length, optimizer": Leap(p=1, metric="optimizer", task_unit=True),
}

UPDATES_A_BLOCK = 4
"""Few, so that a block and its neighbor see the same stretch of the game and the same machine."""

LEAST_CYCLES = 3
WARM_UP_UPDATES = 8


class Block:
    """Some updates with sums of one kind."""

    def __init__(self, agent: BenchAgent, kind: str) -> None:
        agent.path = KINDS[kind].start(agent.task.learner.shared.clone(), borrow=True)
        watch = Stopwatch()
        watch.wrap(agent.path, "visit", "observe")
        agent.run()  # a path's first point closes no segment
        watch.totals_ns.clear()
        self.window: Window = agent.run(updates=UPDATES_A_BLOCK)
        self.observe_us = watch.totals_ns["observe"] / 1e3 / UPDATES_A_BLOCK
        self.update_us = 1e6 * self.window.cpu_s / UPDATES_A_BLOCK


def measure(config: OverheadConfig, progress: Callable[[str], None]) -> dict[str, Any]:
    """Measure an agent with Leap's sums and without.

    Args:
        config: Which agent, and for how long.
        progress: Called now and then with what is going on.

    Returns:
        The metrics by name, all of them plain values. For each kind of sums: `observe_us`, CPU time
        that an update spends in them; `share`, that by the update's whole CPU time, with the
        interval of its median; `share_end_to_end`, by how much the CPU time of a block exceeds its
        neighbor's without sums, likewise, which counts the caches too but is far noisier.

    Raises:
        ValueError: This machine lacks the device, or the units of the precision.
    """
    check_machine(config.agent)
    configure_torch()
    agent = BenchAgent(config.task, config.agent, method=NoMethod())
    agent.run(updates=WARM_UP_UPDATES)
    blocks: dict[str, list[Block]] = {kind: [] for kind in KINDS}
    quiet, own_s = Quiet(), -time.process_time()
    until_s = time.monotonic() + config.seconds
    progress(f"measuring on {config.game} for {config.seconds:.0f} s")
    while len(blocks["none"]) < LEAST_CYCLES or time.monotonic() < until_s:
        # Forwards and backwards, so that a steady change over time favors no kind.
        order = list(KINDS) if len(blocks["none"]) % 2 else list(reversed(KINDS))
        for kind in order:
            blocks[kind].append(Block(agent, kind))
    own_s += time.process_time()
    resolved = agent.task.learner.config
    return {
        "bench": "overhead",
        "game": config.task.resolved_games[0],
        "envs": config.envs,
        "unroll": config.unroll,
        "atari": config.atari_resolved,
        "encoder": config.agent.encoder,
        "parameters": agent.task.learner.shared_size,
        "precision": resolved.precision,
        "device": resolved.device,
        "blocks": len(blocks["none"]),
        "update_us": round(median(block.update_us for block in blocks["none"]), 1),
        "agent_steps_per_s": {
            kind: round(median(block.window.agent_steps_per_s for block in of), 1)
            for kind, of in blocks.items()
        },
        "sums": {kind: _cost(of, blocks["none"]) for kind, of in blocks.items() if kind != "none"},
        "others_cpu_share": round(quiet.others_share(own_s), 4),
        "seconds": config.seconds,
        **circumstances(),
    }


def _cost(blocks: list[Block], without: list[Block]) -> dict[str, Any]:
    pairs = list(zip(blocks, without, strict=True))
    share = estimate([block.observe_us / block.update_us for block in blocks])
    end_to_end = estimate([block.update_us / plain.update_us - 1 for block, plain in pairs])
    return {
        "observe_us": round(median(block.observe_us for block in blocks), 1),
        "share": {name: round(value, 5) for name, value in share._asdict().items()},
        "share_end_to_end": {name: round(v, 5) for name, v in end_to_end._asdict().items()},
    }


def table(metrics: Mapping[str, Any]) -> str:
    """Return the metrics as a table for people."""
    lines = [
        f"{metrics['game']}, {metrics['envs']} environments, unroll {metrics['unroll']}, "
        f"{metrics['encoder']} ({metrics['parameters']:,} shared parameters), "
        f"{metrics['precision']}",
        f"{metrics['processor']}, others used {metrics['others_cpu_share']:.1%} of the machine",
        f"an update takes {metrics['update_us']:,.0f} us of CPU time, acting included; "
        f"{metrics['blocks']} blocks of {UPDATES_A_BLOCK}",
        "",
        f"  {'sums':<18} {'us an update':>12}  {'share of an agent':>26}  "
        f"{'blocks against blocks':>28}  agent steps/s",
        f"  {'none':<82}  {metrics['agent_steps_per_s']['none']:>20,.0f}",
    ]
    for kind, cost in metrics["sums"].items():
        lines.append(
            f"  {kind:<18} {cost['observe_us']:>12,.0f}  {_interval(cost['share']):>26}  "
            f"{_interval(cost['share_end_to_end']):>28}  "
            f"{metrics['agent_steps_per_s'][kind]:>13,.0f}"
        )
    lines.append(
        "  in all lines alike, and Leap's too: RMSProp's sum of squares, see benchmarks/hot_loop.py"
    )
    return "\n".join(lines)


def _interval(value: Mapping[str, float]) -> str:
    return f"{value['median']:.2%} ({value['low']:.2%} to {value['high']:.2%})"
