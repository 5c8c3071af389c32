"""Shared by the peers' scripts: options, processes that start together, one JSON object.

Runs in each peer's own environment, so it imports the standard library alone.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import multiprocessing
import os
import queue
import sys
import time
from collections.abc import Callable
from importlib.metadata import version
from statistics import median
from typing import Any, NamedTuple

WARM_UP_S = 3.0
WINDOWS = 5

Step = Callable[[], int]
"""Does a little work and returns its agent steps: one action of one environment each."""

MakeStep = Callable[[argparse.Namespace, int], Step]
"""Makes a process's own step of the options and the process's number."""


class Rate(NamedTuple):
    """Agent steps a second of all processes together."""

    wall: float
    cpu: float | None = None
    """Of the processes' own CPU time, where it is known."""


def options(description: str) -> argparse.ArgumentParser:
    """Return the options that all peers have."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--game", default="breakout", help="as leap-rl spells it: space_invaders")
    parser.add_argument("--processes", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--envs", type=int, default=32, help="of each process")
    parser.add_argument("--seconds", type=float, default=20.0)
    return parser


def measure(make_step: MakeStep, given: argparse.Namespace) -> Rate:
    """Return the rate of all processes together, each clock's the median of a few windows.

    Args:
        make_step: Makes what each process does.
        given: The options.
    """
    for name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
        os.environ[name] = "1"
    context = multiprocessing.get_context("spawn")
    barrier = context.Barrier(given.processes)
    results = context.Queue()
    members = [
        context.Process(
            target=_member, args=(make_step, given, index, barrier, results), daemon=True
        )
        for index in range(given.processes)
    ]
    for member in members:
        member.start()
    rates: list[list[Rate]] = []
    while len(rates) < len(members):
        with contextlib.suppress(queue.Empty):
            rates.append(results.get(timeout=1.0))
        if any(member.exitcode for member in members):
            sys.exit("a process failed; its own error is above")
    for member in members:
        member.join()
    together = list(zip(*rates, strict=True))
    return Rate(
        median(sum(one.wall for one in window) for window in together),
        # All processes' agent steps over all processes' CPU time, if each does as much.
        median(len(window) / sum(1.0 / one.cpu for one in window) for window in together),
    )


def report(peer: str, given: argparse.Namespace, rate: Rate, packages: list[str]) -> None:
    """Print one JSON object."""
    cpu = {} if rate.cpu is None else {"agent_steps_per_cpu_s": round(rate.cpu, 1)}
    metrics: dict[str, Any] = {
        "peer": peer,
        "agent_steps_per_s": round(rate.wall, 1),
        **cpu,
        **vars(given),
        "versions": {package: version(package) for package in packages},
    }
    print(json.dumps(metrics), flush=True)


def camel_case(game: str) -> str:
    """Return a game's name as Gymnasium spells it: space_invaders is SpaceInvaders."""
    return "".join(part.capitalize() for part in game.split("_"))


def windows(step: Step, seconds: float, start: Callable[[], Any] = lambda: None) -> list[Rate]:
    """Return the rate in each of the windows, after warming up.

    Args:
        step: What is measured.
        seconds: Of all windows.
        start: Called before each of them.
    """
    _run(step, WARM_UP_S)
    rates = []
    for _ in range(WINDOWS):
        start()
        rates.append(_run(step, seconds / WINDOWS))
    return rates


def _run(step: Step, seconds: float) -> Rate:
    agent_steps = 0
    started_s, started_cpu_s = time.perf_counter(), time.process_time()
    until_s = started_s + seconds
    while not agent_steps or time.perf_counter() < until_s:
        agent_steps += step()
    return Rate(
        agent_steps / (time.perf_counter() - started_s),
        agent_steps / (time.process_time() - started_cpu_s),
    )


def _member(
    make_step: MakeStep,
    given: argparse.Namespace,
    index: int,
    barrier: Any,
    results: Any,
) -> None:
    results.put(windows(make_step(given, index), given.seconds, barrier.wait))
