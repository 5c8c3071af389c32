"""The classifier as a learner (paper, appendices on Omniglot and on Multi-CV)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from leap_rl.learners.config import AgentConfig
from leap_rl.learners.learner import Learner
from leap_rl.tasks.config import TaskConfig
from leap_rl.tasks.images.config import CLASSES
from leap_rl.tasks.suites import ImageSetsSuite, ImageSuite, OmniglotSuite

if TYPE_CHECKING:
    from torch import Generator, Tensor

    from leap_rl.learners.classifier.classifier import Network
    from leap_rl.learners.task import Task, TaskSpec
    from leap_rl.networks.parameters import Layout


@dataclass(frozen=True, kw_only=True)
class Classifier(Learner):
    """A convolutional network that learns images by plain gradient descent."""

    name = "classifier"
    learns = ImageSuite
    options: ClassVar[tuple[str, ...]] = ("classifier",)
    plain_descent = True
    differentiable = True

    @classmethod
    def check(cls, task: TaskConfig, agent: AgentConfig, env_processes: int) -> None:
        """Refuse last layers that sets of other numbers of classes would share, too."""
        super().check(task, agent, env_processes)
        if agent.classifier.share == "all" and isinstance(task.suite, ImageSetsSuite):
            raise ValueError(
                f"agent.classifier.share = all: the last layers of task.kind = {task.kind} are as "
                "wide as each set has classes; take all_but_last"
            )

    def __post_init__(self) -> None:
        if self.second_order and isinstance(self.task.suite, ImageSetsSuite):
            raise ValueError(
                "meta.method = maml: differentiates through all updates, too many of them with "
                f"task.kind = {self.task.kind}; take another method, or task.kind = omniglot"
            )

    def check_processor(self) -> None:
        from leap_rl.core.determinism import check_precision

        check_precision("agent.classifier.precision", self.agent.classifier.precision)

    def __call__(self, spec: TaskSpec) -> Task:
        suite = self.task.suite
        if isinstance(suite, ImageSetsSuite):
            from leap_rl.learners.classifier.sets import ImageSetTask

            return ImageSetTask(spec, **self.set_arguments(spec.game))
        from leap_rl.learners.classifier.task import OmniglotTask

        assert isinstance(suite, OmniglotSuite), f"check refuses task.kind = {suite.kind}"
        return OmniglotTask(
            spec,
            images=suite.images(self.task, spec.game),
            updates=self.task.omniglot.updates,
            batch_size=self.task.omniglot.batch_size,
            config=self.agent.classifier,
            loss_difference=self.loss_difference,
            second_order=self.second_order,
        )

    def set_arguments(self, game: str) -> dict[str, Any]:
        """Return what an `ImageSetTask` is made with, besides its spec."""
        from leap_rl.tasks.images.sets import updates_of

        suite = self.task.suite
        assert isinstance(suite, ImageSetsSuite), f"check refuses task.kind = {suite.kind}"
        return {
            "data": suite.images(self.task, game),
            "images": self.task.images,
            "updates": updates_of(str(self.task.data), game, self.task.images),
            "config": self.agent.classifier,
            "loss_difference": self.loss_difference,
        }

    def network(self) -> Network:
        """Return the network whose shared part all tasks have, its parameters zero."""
        from leap_rl.learners.classifier.classifier import make_classifier

        if isinstance(self.task.suite, ImageSetsSuite):
            return make_classifier(1, channels=3)
        return make_classifier(CLASSES)

    def shared_layout(self) -> Layout:
        from leap_rl.learners.classifier.classifier import shared_layout

        return shared_layout(self.network(), self.agent.classifier.share)

    def random_initialization(self, seed: int) -> Tensor:
        import torch

        from leap_rl.networks.parameters import flatten_parameters

        network = self.network()
        self.draw(network, torch.Generator().manual_seed(seed))
        return flatten_parameters(network).vector[: self.shared_layout().size].clone()

    def draw(self, network: Network, generator: Generator) -> None:
        """Draw a network's parameters."""
        from leap_rl.networks.encoders import initialize

        initialize(network, generator)
