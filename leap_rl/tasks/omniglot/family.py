"""How Omniglot's tasks are made of a config. Importing this costs no import of torch."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from leap_rl.learners.config import AgentConfig
from leap_rl.tasks.family import Family
from leap_rl.tasks.images.config import CLASSES, POOLS, OmniglotConfig

if TYPE_CHECKING:
    from torch import Tensor

    from leap_rl.learners.learner import Learner
    from leap_rl.learners.task import Task, TaskSpec
    from leap_rl.networks.parameters import Layout
    from leap_rl.tasks.config import TaskConfig


class OmniglotFamily(Family):
    """Alphabets."""

    kind = "omniglot"
    plain_descent = True
    options = ("data", "data_sha256", "omniglot")
    ignored_agent_options = "all"
    unit = "examples"
    compared_by = "benchmarks/paper/omniglot_scores.py compares initializations of classifiers"
    differentiable = True

    def resolve_games(self, games: Sequence[str]) -> tuple[str, ...]:
        """Return the alphabets; none where a pool is named, whose alphabets the data knows."""
        return () if set(games) & set(POOLS) else tuple(games)

    def updates(self, task: TaskConfig) -> int:
        """Return K, the updates in a task's budget."""
        return task.omniglot.updates

    def with_updates(self, task: TaskConfig, updates: int) -> TaskConfig:
        """Return the tasks with another budget."""
        return replace(task, omniglot=replace(task.omniglot, updates=updates))

    def budget(self, task: TaskConfig) -> int:
        """Return the images that a task learns from."""
        return task.omniglot.updates * task.omniglot.batch_size

    def resolve_task(self, task: TaskConfig) -> TaskConfig:
        """Return the config with its alphabets and its data's SHA-256."""
        from leap_rl.tasks.images.splits import with_alphabets

        return with_alphabets(task)

    def resolve_agent(self, tasks: Learner) -> AgentConfig:
        """Return the settings of agents as they are: there are none."""
        return tasks.agent

    def check_processor(self, tasks: Learner) -> None:
        """Refuse a machine without the precision's units."""
        from leap_rl.core.processor import check_precision

        check_precision("agent.classifier.precision", tasks.agent.classifier.precision)

    def check_machine(self, tasks: Learner) -> None:
        """Refuse a machine without the images, too."""
        from leap_rl.tasks.images.splits import open_data

        open_data(tasks.task)
        self.check_processor(tasks)

    def advise(self, task: TaskConfig, run: str) -> tuple[str, str]:
        """Return how to learn alphabets that the run held out."""
        default = OmniglotConfig()
        more = "".join(
            f" --task.omniglot.{name} {getattr(task.omniglot, name)}"
            for name in ("split", "share", "held_out")
            if getattr(task.omniglot, name) != getattr(default, name)
        )
        return (
            "learn alphabets that it never saw from this initialization",
            f"learn --init {run} --task.kind omniglot --task.games held_out "
            f"--task.data {task.data}{more}",
        )

    def make(self, tasks: Learner, spec: TaskSpec) -> Task:
        """Make the task of learning an alphabet."""
        from leap_rl.learners.classifier.task import OmniglotTask
        from leap_rl.tasks.images.splits import task_images

        assert tasks.task.data is not None
        config = tasks.task.omniglot
        return OmniglotTask(
            spec,
            images=task_images(tasks.task.data, spec.game, config.split),
            config=config,
            loss_difference=tasks.loss_difference,
            second_order=tasks.second_order,
        )

    def shared_layout(self, tasks: Learner) -> Layout:
        """Return the layout of what the classifiers share."""
        from leap_rl.learners.classifier.classifier import shared_layout
        from leap_rl.networks.classifier import make_classifier
        from leap_rl.networks.parameters import layout_of

        return shared_layout(layout_of(make_classifier(CLASSES)), tasks.agent.classifier.share)

    def random_initialization(self, tasks: Learner, seed: int) -> Tensor:
        """Draw a classifier, and return what is shared of it."""
        import torch

        from leap_rl.networks.classifier import make_classifier
        from leap_rl.networks.encoders import initialize
        from leap_rl.networks.parameters import flatten_parameters

        network = make_classifier(CLASSES)
        initialize(network, torch.Generator().manual_seed(seed))
        return flatten_parameters(network).vector[: self.shared_layout(tasks).size].clone()
