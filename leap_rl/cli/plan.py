"""``leap-rl plan``: predicts the hours of a run with a number of trainers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

from leap_rl.bench.config import ThroughputConfig, check_count, check_seconds, trainers_here
from leap_rl.cli.bench import bench_parser, print_metrics, tell
from leap_rl.core.parsing import parse
from leap_rl.runs.config import TrainConfig
from leap_rl.runs.invocation import Invocation

MEASURED_GAMES = 3
"""Games of a config that are measured for a plan; games differ in speed by a factor of two."""


@dataclass(frozen=True)
class PlanConfig(TrainConfig):
    """Predict a meta-training run's hours and core-hours from how fast agents learn here.

    Takes every option of `leap-rl train`. Unless the speed is given, a few of the config's games
    are measured, as the config sets them, with as many trainers as this machine has cores for.
    """

    command: ClassVar[str] = "plan"

    trainers: int | None = None
    """Trainers to plan for. None takes runtime.trainers: if that is auto, as many as this machine
    has cores for, but no more than meta.batch_size; the local runtime has one."""

    agent_steps_per_s: float | None = None
    """Agent steps a second of one trainer. None measures it."""

    seconds: float = 60.0
    """Time to measure for."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.trainers is not None:
            check_count("trainers", self.trainers)
            if self.runtime.kind == "local" and self.trainers > 1:
                raise ValueError(
                    f"trainers = {self.trainers}: runtime.kind = local has one trainer; "
                    "plan for runtime.kind = ray"
                )
        check_seconds(self.seconds)
        rate = self.agent_steps_per_s
        if rate is not None and not 0 < rate < float("inf"):
            raise ValueError(f"agent_steps_per_s = {rate}: must be greater than 0 and finite")

    @property
    def planned_trainers(self) -> int:
        if self.trainers is not None:
            return self.trainers
        if self.runtime.kind == "local":
            return 1
        if self.runtime.trainers != "auto":
            return self.runtime.trainers
        return min(trainers_here(self.runtime.env_processes), self.meta.batch_size)


def main(argv: Sequence[str], call: Invocation) -> int:
    """Run the command; returns its exit status."""
    parser = bench_parser(PlanConfig, program="leap-rl plan")
    config = parse(parser, PlanConfig, argv, trusts_imports=call.trusts_imports)

    from leap_rl.bench import plan

    measured: dict[str, Any] | None = None
    if config.agent_steps_per_s is not None:
        rates = {"any game": config.agent_steps_per_s}
    else:
        rates, measured = _measured_rates(config)
    every, validation = config.validation.every_meta_steps, {}
    if every is not None:
        games = config.validation.of(config.task).resolved_games
        validation = {
            "validations": -(-config.meta.meta_steps // every),
            "validation_tasks": config.validation.agents * len(games),
        }
    metrics = plan.plan_run(
        rates,
        agent_steps=config.task.suite.budget(config.task),
        batch_size=config.meta.batch_size,
        meta_steps=config.meta.meta_steps,
        trainers=config.planned_trainers,
        env_processes=config.runtime.env_processes,
        **validation,
    )
    metrics["assumed"] = plan.assumptions(rates, measured)
    print_metrics(metrics, plan.table, argv)
    return 0


def _measured_rates(config: PlanConfig) -> tuple[dict[str, float], dict[str, Any]]:
    """Measure some of the games, with as many trainers as this machine has cores for.

    Returns:
        Agent steps a second of one trainer by game, and the last measurement's metrics.
    """
    from leap_rl.bench import plan, throughput
    from leap_rl.learners.registry import algorithm_of, make_game_learner

    task, meta, env_processes = config.task, config.meta, config.runtime.env_processes
    algorithm = algorithm_of(task, config.agent)
    if algorithm != "a2c" or not task.suite.spreads_environments:
        raise ValueError(
            f"task.kind = {task.kind}, agent.algorithm = {algorithm}: only Atari games and "
            "Gymnasium environments are measured, with a2c; give --agent_steps_per_s, the speed of "
            "one trainer"
        )
    gymnasium = task.gymnasium
    if task.suite.frames_per_agent_step(task) == 0:
        shape = make_game_learner(task=task, agent=config.agent).observation_shape
        gymnasium = replace(gymnasium, observation_shape=list(shape))
    rates: dict[str, float] = {}
    metrics: dict[str, Any] = {}
    games = plan.spread(task.resolved_games, MEASURED_GAMES)
    for game in games:
        measured = ThroughputConfig(
            game=game,
            seconds=config.seconds / len(games),
            envs=task.num_envs,
            unroll=task.unroll_length,
            atari=task.atari,
            gymnasium=gymnasium,
            agent=config.agent,
            trainers=min(config.planned_trainers, trainers_here(env_processes)),
            env_processes=env_processes,
        )
        metrics = throughput.measure(
            measured, tell, method=meta.build(), loss_difference=meta.loss_difference
        )
        rates[game] = metrics["agent_steps_per_s"] / metrics["trainers"]
    return rates, metrics
