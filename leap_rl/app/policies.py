"""Makes of a command's config what its run consists of: the tasks and the rounds' policy."""

from __future__ import annotations

from leap_rl.config import Config, EvaluateConfig, LearnConfig, TrainConfig
from leap_rl.tasks.config import LossDifference
from leap_rl.tasks.factory import ConfiguredTasks
from leap_rl.training.rounds.learning import LearningFactory
from leap_rl.training.rounds.meta_training import MetaTrainingFactory
from leap_rl.training.rounds.policy import RoundPolicyFactory
from leap_rl.training.rounds.transfer import EvaluationFactory
from leap_rl.training.rounds.validation import Validation


def make_tasks(config: Config) -> ConfiguredTasks:
    """Return what makes a run's tasks."""
    loss_difference: LossDifference = "next_batch"
    second_order = False
    if isinstance(config, TrainConfig):
        loss_difference = config.meta.loss_difference
        second_order = config.meta.differentiates_updates
    return ConfiguredTasks(
        task=config.task,
        agent=config.agent,
        loss_difference=loss_difference,
        env_processes=config.runtime.env_processes,
        second_order=second_order,
    )


def make_policy(config: Config) -> RoundPolicyFactory:
    """Return what makes a run's policy."""
    if isinstance(config, TrainConfig):
        return make_meta_training(config)
    if isinstance(config, EvaluateConfig):
        return make_evaluation(config)
    return make_learning(config)


def make_learning(config: LearnConfig) -> LearningFactory:
    """Return what makes a learning run's checkpoint and its policy."""
    layout = make_tasks(config).shared_layout()
    return LearningFactory(
        seed=config.seed, games=config.task.resolved_games, layout=layout, unit=config.task.unit
    )


def make_evaluation(config: EvaluateConfig) -> EvaluationFactory:
    """Return what makes an evaluation's checkpoint and its policy."""
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
    tasks = make_tasks(config)
    optimizer, meta_lr = config.meta.outer
    return MetaTrainingFactory(
        seed=config.seed,
        games=config.task.resolved_games,
        batch_size=config.meta.batch_size,
        meta_steps=config.meta.meta_steps,
        meta_lr=meta_lr,
        optimizer=optimizer,
        layout=tasks.shared_layout(),
        frames_per_agent_step=tasks.frames_per_agent_step,
        unit=config.task.unit,
        validation=_make_validation(config),
    )


def _make_validation(config: TrainConfig) -> Validation | None:
    every = config.validation.every_meta_steps
    if every is None:
        return None
    games = config.validation.of(config.task).resolved_games
    return Validation(every_meta_steps=every, games=games, agents=config.validation.agents)
