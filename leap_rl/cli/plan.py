"""``leap-rl plan``: how long a run would take, and what more trainers would bring."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from leap_rl.bench.config import check_seconds, check_trainers, cores
from leap_rl.cli.bench import add_json, print_figures, take_json, tell
from leap_rl.cli.parser import config_parser, parse
from leap_rl.config import TrainConfig


@dataclass(frozen=True)
class PlanConfig(TrainConfig):
    """Predict a meta-training run's hours and core-hours from how fast agents learn here.

    Takes every option of `leap-rl train`. A few of the config's games are measured with a trainer
    on each core of this machine, unless the speed is given.
    """

    command: ClassVar[str] = "plan"

    trainers: int | None = None
    """Trainers to plan for. None takes runtime.trainers, and one for each core if that is auto."""

    agent_steps_per_s: float | None = None
    """Agent steps a second of one trainer. None measures it."""

    seconds: float = 60.0
    """Time to measure for."""

    def __post_init__(self) -> None:
        """Refuse what cannot be meant.

        Raises:
            ValueError: A field is out of range.
        """
        super().__post_init__()
        if self.trainers is not None:
            check_trainers("trainers", self.trainers)
        check_seconds(self.seconds)
        rate = self.agent_steps_per_s
        if rate is not None and not 0 < rate < float("inf"):
            raise ValueError(f"agent_steps_per_s = {rate}: must be greater than 0 and finite")

    @property
    def planned_trainers(self) -> int:
        """The number of trainers."""
        if self.trainers is not None:
            return self.trainers
        return cores() if self.runtime.trainers == "auto" else self.runtime.trainers


def main(argv: Sequence[str]) -> int:
    """Run the command; returns its exit status."""
    words, as_json = take_json(argv)
    parser = config_parser(PlanConfig, program="leap-rl plan")
    add_json(parser)
    config = parse(parser, PlanConfig, words)

    from leap_rl.bench import plan

    measured = None
    if config.agent_steps_per_s is not None:
        rates = {"any game": config.agent_steps_per_s}
    else:
        rates, measured = plan.measured_rates(
            config.task, config.agent, seconds=config.seconds, progress=tell
        )
    figures = plan.plan_run(
        rates,
        agent_steps=config.task.agent_steps,
        batch_size=config.meta.batch_size,
        meta_steps=config.meta.meta_steps,
        trainers=config.planned_trainers,
    )
    figures["assumed"] = plan.assumptions(rates, measured)
    print_figures(figures, plan.table, as_json=as_json)
    return 0
