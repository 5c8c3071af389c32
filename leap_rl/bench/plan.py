"""Predicts how long a run takes from the speed of one trainer.

Trainers take a meta-step's tasks, the longest first, each the next one as soon as it is done, and
the next meta-step starts when all tasks are done.
"""

from __future__ import annotations

import heapq
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import cycle, islice
from typing import TYPE_CHECKING, Any

from leap_rl.core.determinism import processor_kind
from leap_rl.core.machine import cores
from leap_rl.tracking.metrics import UNITS, Unit

if TYPE_CHECKING:
    from leap_rl.learners.learner import Learner
    from leap_rl.meta.gradient_path import Method

HOUR_S = 3600.0


@dataclass(frozen=True, kw_only=True, slots=True)
class MetaStepPlan:
    """Times of one meta-step."""

    length_s: float
    tail_s: float
    """From the time when the first trainer is out of tasks until the end."""
    longest_task_s: float
    """The lower bound with any number of trainers."""


def plan_meta_step(task_s: Sequence[float], *, trainers: int) -> MetaStepPlan:
    """Plan a meta-step from the seconds of its tasks."""
    free_at_s = [0.0] * trainers
    for seconds in sorted(task_s, reverse=True):
        heapq.heappush(free_at_s, heapq.heappop(free_at_s) + seconds)
    length_s = max(free_at_s)
    tail_s = length_s - min(free_at_s)
    return MetaStepPlan(length_s=length_s, tail_s=tail_s, longest_task_s=max(task_s))


def fewest_trainers(task_s: Sequence[float], *, trainers: int) -> int:
    """Return the fewest trainers with which a meta-step is as fast as with `trainers`, to 1 %."""
    longest_s = 1.01 * plan_meta_step(task_s, trainers=trainers).length_s
    return next(
        fewer
        for fewer in range(1, trainers + 1)
        if plan_meta_step(task_s, trainers=fewer).length_s <= longest_s
    )


def plan_run(
    rates: Mapping[str, float],
    *,
    agent_steps: int,
    unit: Unit = "agent_steps",
    batch_size: int,
    meta_steps: int,
    trainers: int,
    env_processes: int = 1,
    validations: int = 0,
    validation_tasks: int = 0,
) -> dict[str, Any]:
    """Predict a run's time; return the metrics by name, a meta-step's of one without validation.

    `rates` are agent steps a second of one trainer, by game; a batch is assumed to consist of these
    games in equal parts. A task has `agent_steps`, which are examples if `unit` says so, and a
    trainer takes as many cores as it has environment processes. `validations` meta-steps have so
    many `validation_tasks` more.
    """
    most_tasks = batch_size + validation_tasks
    validated_s = list(islice(cycle(agent_steps / rate for rate in rates.values()), most_tasks))
    task_s = validated_s[:batch_size]
    step = plan_meta_step(task_s, trainers=trainers)
    validated = plan_meta_step(validated_s, trainers=trainers)
    rest = meta_steps - validations
    hours = (rest * step.length_s + validations * validated.length_s) / HOUR_S
    busy_hours = (rest * sum(task_s) + validations * sum(validated_s)) / HOUR_S
    return {
        "trainers": trainers,
        "cores": trainers * env_processes,
        "batch_size": batch_size,
        "meta_steps": meta_steps,
        "unit": unit,
        "agent_steps_per_task": agent_steps,
        "agent_steps_per_s_per_trainer": {game: round(rate, 1) for game, rate in rates.items()},
        "rounds_per_meta_step": -(-batch_size // trainers),
        "hours": hours,
        "core_hours": hours * trainers * env_processes,
        "busy_core_hours": busy_hours * env_processes,
        "busy_share": busy_hours / (trainers * hours),
        "validations": validations,
        "validation_tasks": validation_tasks,
        "idle_tail_hours_per_meta_step": step.tail_s / HOUR_S,
        "hours_per_meta_step": step.length_s / HOUR_S,
        "floor_hours_per_meta_step": step.longest_task_s / HOUR_S,
        "floor_hours": (rest * step.longest_task_s + validations * validated.longest_task_s)
        / HOUR_S,
        "fewest_trainers_as_fast": fewest_trainers(task_s, trainers=trainers),
    }


def agent_steps_per_s(learner: Learner, method: Method, game: str, seconds: float) -> float:
    """Return the agent steps a second of an agent that meta-trains alone; the first are left out.

    ValueError: the learner cannot learn the game.
    """
    from leap_rl.core.determinism import configure_torch
    from leap_rl.learners.task import TaskSpec

    configure_torch()
    task = learner(TaskSpec(game=game, seed=0))
    theta0 = learner.random_initialization(0)
    try:
        task.start(theta0)
        path = method.start(theta0.to(task.device), borrow=True)
        first_s = time.monotonic()
        made = task.advance(path.visit).agent_steps  # which compiles, and reserves memory
        began_s, before = time.monotonic(), made
        if task.done:  # all there is to measure
            return made / (began_s - first_s + 1e-9)
        while not task.done and (made == before or time.monotonic() < began_s + seconds):
            made = task.advance(path.visit).agent_steps
        return max(made - before, 1) / (time.monotonic() - began_s + 1e-9)
    finally:
        task.close()


def spread(games: Sequence[str], count: int) -> list[str]:
    """Return `count` of the games, evenly spread over the list, or all if there are fewer."""
    if len(games) <= count:
        return list(games)
    return [games[(2 * index + 1) * len(games) // (2 * count)] for index in range(count)]


def table(metrics: Mapping[str, Any]) -> str:
    """Return the metrics as a table."""
    trainers, batch = metrics["trainers"], metrics["batch_size"]
    lines = [
        f"{metrics['meta_steps']} meta-steps of {batch} tasks, "
        f"{metrics['agent_steps_per_task']:,} {UNITS[metrics['unit']]} each, on {trainers} "
        f"trainers and {metrics['cores']} cores:",
        "",
        f"  {metrics['hours']:>12,.1f} hours",
        f"  {metrics['core_hours']:>12,.1f} core-hours, "
        f"trainers are busy for {metrics['busy_share']:.1%} of them",
        f"  {metrics['hours_per_meta_step']:>12,.2f} hours a meta-step, in "
        f"{metrics['rounds_per_meta_step']} rounds of tasks; the last "
        f"{metrics['idle_tail_hours_per_meta_step']:,.2f} hours are a tail with idle trainers",
        f"  {metrics['floor_hours']:>12,.1f} hours is the floor with any number of trainers: "
        f"the longest task takes {metrics['floor_hours_per_meta_step']:,.2f} hours",
    ]
    if metrics["validations"]:
        lines.append(
            f"  {metrics['validations']:>12} of the meta-steps have {metrics['validation_tasks']} "
            "tasks more, which judge the initialization"
        )
    if metrics["fewest_trainers_as_fast"] < trainers:
        lines.append(f"  {metrics['fewest_trainers_as_fast']:>12} trainers would be as fast")
    lines += ["", "assumed:"]
    lines += [f"  {line}" for line in metrics["assumed"]]
    return "\n".join(lines)


def assumptions(rates: Mapping[str, float], *, unit: Unit, given: bool) -> list[str]:
    """Return the assumptions of a plan, one a line; ``given`` says that nothing was measured."""
    lines = ["the server, snapshots and the cluster's start take no time"]
    if given:
        (rate,) = rates.values()
        return [f"every trainer makes {rate:,.0f} {UNITS[unit]}/s in any game, as given", *lines]
    speeds = ", ".join(f"{game} {rate:,.0f}" for game, rate in rates.items())
    return [
        f"one trainer makes, in {UNITS[unit]}/s: {speeds}; other games are like these",
        f"every core is like one of this machine ({processor_kind()}, {cores()} cores), on which "
        "an agent was measured alone for seconds; `leap-rl bench throughput` measures several",
        "policies are as fast late in training as at its start",
        *lines,
    ]
