"""What lent cores are worth: meta-steps simulated from the games' measured times.

A game's emulation is measured here, with random actions, in processor time; learning is the same
for all games and is not spread. Every trainer has one task, on machines of so many cores, and cores
without a task are lent as `Rounds.env_processes` and the trainers do it.
"""

from __future__ import annotations

import math
import random
import time
from collections.abc import Callable, Mapping, Sequence
from statistics import fmean
from typing import Any, NamedTuple

import numpy as np

from benchmarks.system.config import LendingConfig
from leap_rl.bench.machine import circumstances
from leap_rl.envs.games import random_actions
from leap_rl.envs.vector import GameVector
from leap_rl.tasks.config import TaskConfig
from leap_rl.tasks.suite import GameSuite

DRAWS = 20
"""Simulated meta-steps of each number of trainers."""
ENVS = 8
"""Environments that are measured."""


class Cost(NamedTuple):
    """Time of a game's agent step, in any unit."""

    emulation: float
    learning: float

    def over(self, processes: int) -> float:
        """Return the time with the emulators spread over processes."""
        return self.emulation / processes + self.learning


def measure(config: LendingConfig, progress: Callable[[str], None]) -> dict[str, Any]:
    """Measure the games of a pool, and simulate meta-steps.

    Args:
        config: The pool, the time for each game, the numbers of trainers.
        progress: Called now and then with what is going on.

    Returns:
        The metrics by name, all of them plain values. Busy is the time of the tasks without lending
        over trainers × the meta-step's time, the mean of simulated ones.
    """
    task = TaskConfig(games=[config.games], num_envs=ENVS)
    suite, emulation_us = task.suite, {}
    assert isinstance(suite, GameSuite)
    for game in task.resolved_games:
        progress(game)
        envs = suite.make_envs(task, game, seed=0)
        emulation_us[game] = round(_emulation_us(envs, config.seconds))
        envs.close()
    costs = [Cost(us, config.learning_us) for us in emulation_us.values()]
    drawn, loads = random.Random(0), []
    for trainers in config.trainers:
        batches = [
            [drawn.choice(costs) for _ in range(trainers)]
            if trainers > len(costs)
            else drawn.sample(costs, trainers)
            for _ in range(DRAWS)
        ]
        loads.append(
            {"trainers": trainers}
            | {
                name: fmean(busy(batch, config.cores, lends=lends) for batch in batches)
                for name, lends in (("busy", False), ("busy_lending", True))
            }
        )
    return {
        "bench": "lending",
        "emulation_us": emulation_us,
        "learning_us": config.learning_us,
        "cores_of_a_machine": config.cores,
        "loads": loads,
        **circumstances(),
    }


def _emulation_us(envs: GameVector, seconds: float) -> float:
    """Return the processor time of an environment's step, with random actions."""
    envs.reset()
    generator, steps, began_s = np.random.default_rng(0), 0, time.process_time()
    while time.process_time() < began_s + seconds:
        envs.step(random_actions(envs, envs.num_envs, generator))
        steps += envs.num_envs
    return 1e6 * (time.process_time() - began_s) / steps


def busy(batch: Sequence[Cost], cores: int, *, lends: bool) -> float:
    """Return the tasks' own time over trainers × that of their meta-step."""
    machines = [batch[first : first + cores] for first in range(0, len(batch), cores)]
    length = max(meta_step(machine, lends=lends) for machine in machines)
    return math.fsum(cost.over(1) for cost in batch) / (len(batch) * length)


def meta_step(costs: Sequence[Cost], *, lends: bool) -> float:
    """Return how long one machine's tasks take, one for each core, in agent steps' times."""
    left = dict.fromkeys(range(len(costs)), 1.0)
    processes, now = [1] * len(costs), 0.0
    while left:
        each, left_over = divmod(len(costs) - len(left), len(left))
        for place, task in enumerate(sorted(left, key=lambda one: -left[one])):
            offered = 1 + each + (place < left_over)
            if lends and offered >= 2 * processes[task]:
                processes[task] = offered
        ends = {task: part * costs[task].over(processes[task]) for task, part in left.items()}
        passed = min(ends.values())
        now += passed
        left = {
            task: left[task] - passed / costs[task].over(processes[task])
            for task, end in ends.items()
            if end > passed
        }
    return now


def table(metrics: Mapping[str, Any]) -> str:
    """Return the metrics as a table for people."""
    times = sorted(metrics["emulation_us"].values())
    lines = [
        f"{len(times)} games: emulation takes {times[0]} to {times[-1]} us of processor time an "
        f"agent step, learning {metrics['learning_us']:g}",
        f"{metrics['processor']}; machines of {metrics['cores_of_a_machine']} cores; simulated",
        "",
        f"  {'trainers':>8}  {'busy':>6}  {'with lent cores':>15}",
    ]
    lines += [
        f"  {load['trainers']:>8}  {load['busy']:>6.3f}  {load['busy_lending']:>15.3f}"
        for load in metrics["loads"]
    ]
    return "\n".join(lines)
