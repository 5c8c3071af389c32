"""``leap-rl plan``: predicts the hours of a run with a number of trainers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from typing import ClassVar

from leap_rl.bench.config import check_count, check_seconds, trainers_here
from leap_rl.cli.bench import bench_parser, print_metrics
from leap_rl.core.parsing import parse
from leap_rl.learners.config import AgentConfig
from leap_rl.runs.config import TrainConfig
from leap_rl.runs.display import tell
from leap_rl.runs.invocation import Invocation
from leap_rl.tasks.config import TaskConfig

MEASURED_GAMES = 3
"""Games of a config that are measured for a plan; games differ in speed by a factor of two."""


@dataclass(frozen=True)
class PlanConfig(TrainConfig):
    """Predict a meta-training run's hours and core-hours from how fast agents learn here.

    Takes every option of `leap-rl train`. Unless the speed is given, an agent learns a few of the
    config's games for seconds each, as the config sets them.
    """

    command: ClassVar[str] = "plan"

    trainers: int | None = None
    """Trainers to plan for. None takes runtime.trainers: if that is auto, as many as this machine
    has cores for, but no more than meta.batch_size; the local runtime has one."""

    agent_steps_per_s: float | None = None
    """Agent steps a second of one trainer. None measures it."""

    seconds: float = 6.0
    """Time to measure for, besides what it takes to begin; divided among the games."""

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
        return min(trainers_here(self.runtime.own_env_processes), self.meta.batch_size)


def main(argv: Sequence[str], call: Invocation) -> int:
    """Run the command; returns its exit status."""
    parser = bench_parser(PlanConfig, program="leap-rl plan")
    config = parse(parser, PlanConfig, argv, trusts_imports=call.trusts_imports)
    config = replace(config, task=_resolved(config.task, config.agent))

    from leap_rl.bench import plan

    given = config.agent_steps_per_s
    rates = _measured_rates(config) if given is None else {"any game": given}
    every, validation = config.validation.every_meta_steps, {}
    if every is not None:
        games = _resolved(config.validation.of(config.task), config.agent).resolved_games
        validation = {
            "validations": -(-config.meta.meta_steps // every),
            "validation_tasks": config.validation.agents * len(games),
        }
    unit = config.task.suite.unit
    metrics = plan.plan_run(
        rates,
        unit=unit,
        agent_steps=config.task.suite.budget(config.task),
        batch_size=config.meta.batch_size,
        meta_steps=config.meta.meta_steps,
        trainers=config.planned_trainers,
        env_processes=config.runtime.own_env_processes,
        **validation,
    )
    metrics["assumed"] = plan.assumptions(rates, unit=unit, given=given is not None)
    print_metrics(metrics, plan.table, argv)
    return 0


def _resolved(task: TaskConfig, agent: AgentConfig) -> TaskConfig:
    """Return the task with the sizes that its games tell, and the games that its data tells."""
    from leap_rl.runs.creation import resolved_task

    is_known = task.is_sized and task.resolved_games
    return task if is_known else resolved_task(task, agent)


def _measured_rates(config: PlanConfig) -> dict[str, float]:
    """Return the agent steps a second of one trainer in some of the games, measured one by one."""
    from leap_rl.bench import plan
    from leap_rl.runs.kinds import make_tasks

    groups = {one.name: getattr(config, one.name) for one in fields(TrainConfig)}
    learner = make_tasks(TrainConfig(**groups))
    learner.shared_layout()  # which refuses games that cannot be learned
    games = plan.spread(config.task.task_games, MEASURED_GAMES)
    rates = {}
    for game in games:
        tell(f"measuring {game}")
        seconds = config.seconds / len(games)
        rates[game] = plan.agent_steps_per_s(learner, config.meta.build(), game, seconds)
    return rates
