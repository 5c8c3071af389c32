"""Makes of a command's config what its run consists of: the tasks and the rounds' plan."""

from __future__ import annotations

from leap_rl.config import Config, EvaluateConfig, LearnConfig, TrainConfig
from leap_rl.learners.learner import Learner
from leap_rl.learners.registry import make_learner
from leap_rl.training.rounds.evaluation import EvaluationFactory
from leap_rl.training.rounds.learning import LearningFactory
from leap_rl.training.rounds.meta_training import MetaTrainingFactory
from leap_rl.training.rounds.plan import RoundPlanFactory
from leap_rl.training.rounds.validation import Validation


def make_tasks(config: Config) -> Learner:
    """Return what makes a run's tasks."""
    meta = config.meta if isinstance(config, TrainConfig) else None
    return make_learner(
        task=config.task,
        agent=config.agent,
        loss_difference=meta.loss_difference if meta else "next_batch",
        env_processes=config.runtime.env_processes,
        second_order=meta is not None and meta.differentiates_updates,
    )


def make_plan(config: Config) -> RoundPlanFactory:
    """Return what makes a run's plan."""
    if isinstance(config, TrainConfig):
        return make_meta_training(config)
    if isinstance(config, EvaluateConfig):
        return make_evaluation(config)
    return make_learning(config)


def make_learning(config: LearnConfig) -> LearningFactory:
    """Return what makes a learning run's checkpoint and its plan."""
    return LearningFactory(
        seed=config.seed,
        games=config.task.resolved_games,
        layout=make_tasks(config).shared_layout(),
        unit=config.task.suite.unit,
    )


def make_evaluation(config: EvaluateConfig) -> EvaluationFactory:
    """Return what makes an evaluation's checkpoint and its plan."""
    tasks = make_tasks(config)
    return EvaluationFactory(
        seed=config.seed,
        games=config.task.resolved_games,
        seeds=config.seeds,
        agent_steps=config.task.agent_steps,
        layout=tasks.shared_layout(),
        random_initialization=tasks.random_initialization if config.random else None,
        save_agents=config.save_agents,
    )


def make_meta_training(config: TrainConfig) -> MetaTrainingFactory:
    """Return what makes a meta-training run's checkpoints."""
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
        games=config.task.resolved_games,
        batch_size=config.meta.batch_size,
        meta_steps=config.meta.meta_steps,
        meta_lr=meta_lr,
        optimizer=optimizer,
        layout=make_tasks(config).shared_layout(),
        frames_per_agent_step=config.task.suite.frames_per_agent_step(config.task),
        unit=config.task.suite.unit,
        validation=validation,
    )
