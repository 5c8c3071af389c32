"""What tells one kind of run from another: a `RunKind` each for train, learn and evaluate."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, Generic, TypeGuard, TypeVar, cast

from leap_rl.learners.learner import Learner
from leap_rl.learners.registry import make_learner
from leap_rl.meta.config import MetaConfig
from leap_rl.meta.gradient_path import Method, NoMethod
from leap_rl.runs.announcement import announce_agents, announce_evaluation, announce_initialization
from leap_rl.runs.config import Config, EvaluateConfig, LearnConfig, TrainConfig
from leap_rl.storage.run_folder import RunFolder
from leap_rl.tracking.console import Console
from leap_rl.tracking.tracker import Tracker
from leap_rl.training.interrupts import Interrupts
from leap_rl.training.rounds.evaluation import EvaluationFactory, LearningFactory
from leap_rl.training.rounds.meta_training import MetaTrainingFactory
from leap_rl.training.rounds.plan import RoundPlanFactory
from leap_rl.training.rounds.validation import Validation

if TYPE_CHECKING:
    from pathlib import Path

    from leap_rl.evaluation.page import Part
    from leap_rl.evaluation.summary import Summary
    from leap_rl.runs.header import LoadedRun

C = TypeVar("C", bound=Config)


class RunKind(Generic[C]):
    """The interface of a kind of run; its defaults are those of runs with one round."""

    config: type[C]
    """The class of its configs."""
    row_per_round = False
    """Whether a round logs exactly one row."""

    def meta(self, config: C) -> MetaConfig | None:
        """Return the options of meta-learning, if it meta-learns."""
        return None

    def method(self, config: C) -> Method:
        """Return how tasks contribute to the initialization."""
        return NoMethod()

    def plan(self, config: C) -> RoundPlanFactory:
        """Return what makes a run's checkpoints and the plan of its rounds."""
        raise NotImplementedError

    def rounds(self, config: C) -> int:
        """Return how many rounds a finished run has."""
        return 1

    def progress(self, config: C, rounds: int) -> str:
        """Return how many rounds of how many a run has made, in words; empty if it has but one."""
        return ""

    def init(self, config: C) -> str:
        """Return the value of the option that names what the encoder starts from."""
        raise NotImplementedError

    def with_init(self, config: C, init: str) -> C:
        """Return the config with another name of the same initialization."""
        raise NotImplementedError

    def resolved(self, config: C) -> C:
        """Return the config with what this kind alone resolves.

        Raises:
            ValueError: What it asks for is not here.
        """
        return config

    def check_learner(self, config: C, learner: Learner) -> None:
        """Raise ValueError where the config asks for more than the learner can do."""

    def rows_of(self, folder: RunFolder, numbers: range) -> int:
        """Return how many rows the checkpoints of these numbers hold.

        Raises:
            RunFolderError: A checkpoint cannot be read.
        """
        if self.row_per_round:
            return len(numbers)
        return sum(len(folder.read_state(number)["rows"]) for number in numbers)

    def conclude(
        self,
        config: C,
        folder: RunFolder,
        tracker: Tracker,
        console: Console,
        interrupts: Interrupts,
    ) -> Summary | None:
        """Write and log what is made of a run once its rounds are done.

        Returns:
            An evaluation's summary, which takes seconds to compute.
        """
        return None

    def part(self, run: LoadedRun, config: C, figures: Path, summary: Summary | None) -> Part:
        """Return a report's part on a run; write its plots to ``figures``.

        Raises:
            ValueError: There is nothing to report of.
        """
        raise ValueError(
            f"{run.folder.path}: is a run of leap-rl {config.command}, of which its metrics.jsonl "
            "says all; name a run of leap-rl train or of leap-rl evaluate"
        )

    def announce(
        self, folder: RunFolder, config: C, *, summary: Summary | None = None, opens: bool = False
    ) -> None:
        """Print what a finished run came to; ``opens`` shows a report in the browser.

        An evaluation's summary is computed where it is not given.
        """
        raise NotImplementedError


class _MetaTraining(RunKind[TrainConfig]):
    config = TrainConfig
    row_per_round = True

    def meta(self, config: TrainConfig) -> MetaConfig:
        return config.meta

    def method(self, config: TrainConfig) -> Method:
        return config.meta.build()

    def plan(self, config: TrainConfig) -> MetaTrainingFactory:
        optimizer, meta_lr = config.meta.outer
        validation = None
        if config.validation.every_meta_steps is not None:
            validation = Validation(
                every_meta_steps=config.validation.every_meta_steps,
                games=config.validation.of(config.task).resolved_games,
                agents=config.validation.agents,
            )
        return MetaTrainingFactory(
            seed=config.seed,
            games=config.task.task_games,
            batch_size=config.meta.batch_size,
            meta_steps=config.meta.meta_steps,
            meta_lr=meta_lr,
            optimizer=optimizer,
            layout=make_tasks(config).shared_layout(),
            frames_per_agent_step=config.task.suite.frames_per_agent_step(config.task),
            unit=config.task.suite.unit,
            validation=validation,
        )

    def check_learner(self, config: TrainConfig, learner: Learner) -> None:
        config.check_method(type(learner))
        if not (config.meta.carries_agents and learner.restorable):
            return
        for game in config.task.task_games:
            if not learner.restores(game):
                raise ValueError(
                    f"meta.method = {config.meta.method}: carries agents and their environments "
                    f"over to another round, and {game!r} of task.games has no snapshots, as its "
                    "VectorEnv has no get_state and set_state; take another meta.method"
                )

    def rounds(self, config: TrainConfig) -> int:
        return config.meta.meta_steps

    def progress(self, config: TrainConfig, rounds: int) -> str:
        return f"{rounds} of {config.meta.meta_steps} meta-steps"

    def init(self, config: TrainConfig) -> str:
        return config.meta.init

    def with_init(self, config: TrainConfig, init: str) -> TrainConfig:
        return replace(config, meta=replace(config.meta, init=init))

    def resolved(self, config: TrainConfig) -> TrainConfig:
        if config.validation.every_meta_steps is None:
            return config
        try:
            judging = config.validation.of(config.task)
            games = judging.suite.resolve(judging).resolved_games
            if config.agent.share == "agent":  # one agent learns them all
                both = dict.fromkeys((*config.task.resolved_games, *games))
                judging = replace(judging, games=list(both))
            make_tasks(replace(config, task=judging)).resolved_agent()
        except ValueError as error:
            raise ValueError(str(error).replace("task.games", "validation.games")) from None
        return replace(config, validation=replace(config.validation, games=list(games)))

    def announce(
        self,
        folder: RunFolder,
        config: TrainConfig,
        *,
        summary: Summary | None = None,
        opens: bool = False,
    ) -> None:
        announce_initialization(folder, config)

    def part(
        self, run: LoadedRun, config: TrainConfig, figures: Path, summary: Summary | None
    ) -> Part:
        from leap_rl.runs.report import meta_run_part

        return meta_run_part(run, config, figures)


class _Learning(RunKind[LearnConfig]):
    config = LearnConfig

    def plan(self, config: LearnConfig) -> LearningFactory:
        return LearningFactory(
            seed=config.seed,
            games=config.task.task_games,
            layout=make_tasks(config).shared_layout(),
            unit=config.task.suite.unit,
        )

    def init(self, config: LearnConfig) -> str:
        return config.init

    def with_init(self, config: LearnConfig, init: str) -> LearnConfig:
        return replace(config, init=init)

    def announce(
        self,
        folder: RunFolder,
        config: LearnConfig,
        *,
        summary: Summary | None = None,
        opens: bool = False,
    ) -> None:
        announce_agents(folder)


class _Evaluating(RunKind[EvaluateConfig]):
    config = EvaluateConfig

    def plan(self, config: EvaluateConfig) -> EvaluationFactory:
        tasks = make_tasks(config)
        return EvaluationFactory(
            seed=config.seed,
            games=config.task.task_games,
            seeds=config.seeds,
            agent_steps=config.task.agent_steps,
            layout=tasks.shared_layout(),
            random_initialization=tasks.random_initialization,
            random=config.random,
            random_agents=config.random_agents,
            save_agents=config.save_agents,
        )

    def resolved(self, config: EvaluateConfig) -> EvaluateConfig:
        if config.clips:
            from leap_rl.video.clip import check_video

            check_video("clips = true")
        return config

    def conclude(
        self,
        config: EvaluateConfig,
        folder: RunFolder,
        tracker: Tracker,
        console: Console,
        interrupts: Interrupts,
    ) -> Summary:
        from leap_rl.evaluation.comparison import read_summary
        from leap_rl.runs.report import write_report

        if config.clips:
            from leap_rl.runs.clips import record_clips

            record_clips(config, folder, tracker=tracker, console=console, check=interrupts.check)
        summary = read_summary(folder)
        report = write_report([folder], make_part=report_part, summary=summary)
        if config.tracking.wandb != "disabled":
            from leap_rl.runs.evaluation_tables import log_outcome

            log_outcome(summary, report, tracker=tracker)
        return summary

    def announce(
        self,
        folder: RunFolder,
        config: EvaluateConfig,
        *,
        summary: Summary | None = None,
        opens: bool = False,
    ) -> None:
        announce_evaluation(folder, summary, opens=opens)

    def part(
        self, run: LoadedRun, config: EvaluateConfig, figures: Path, summary: Summary | None
    ) -> Part:
        from leap_rl.runs.report import evaluation_part

        return evaluation_part(run, config, figures, summary)


def report_part(run: LoadedRun, figures: Path, summary: Summary | None) -> Part:
    """Return a report's part on a run, see `RunKind.part`."""
    return kind_of(run.config).part(run, run.config, figures, summary)


META_TRAINING, LEARNING, EVALUATING = _MetaTraining(), _Learning(), _Evaluating()

_KINDS: dict[str, RunKind[Any]] = {
    kind.config.command: kind for kind in (META_TRAINING, LEARNING, EVALUATING)
}


def kind_of(config: C) -> RunKind[C]:
    """Return the kind of the runs of a config."""
    return cast(RunKind[C], _KINDS[config.command])


def meta_trains(config: Config) -> TypeGuard[TrainConfig]:
    """Return whether runs of a config make initializations."""
    return config.command == TrainConfig.command


def make_tasks(config: Config) -> Learner:
    """Return what makes a run's tasks."""
    meta = kind_of(config).meta(config)
    return make_learner(
        task=config.task,
        agent=config.agent,
        loss_difference=meta.loss_difference if meta else "next_batch",
        env_processes=config.runtime.own_env_processes,
        second_order=meta is not None and meta.differentiates_updates,
    )
