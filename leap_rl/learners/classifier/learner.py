"""The classifier as a learner (paper, appendix "Experiment details: Omniglot")."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from leap_rl.learners.learner import Learner
from leap_rl.tasks.images.config import CLASSES
from leap_rl.tasks.suites import OmniglotSuite

if TYPE_CHECKING:
    from torch import Tensor

    from leap_rl.learners.task import Task, TaskSpec
    from leap_rl.networks.parameters import Layout


@dataclass(frozen=True, kw_only=True)
class Classifier(Learner):
    """A convolutional network that learns images by plain gradient descent."""

    name = "classifier"
    learns = OmniglotSuite
    options = ("classifier",)
    plain_descent = True
    differentiable = True

    def check_processor(self) -> None:
        from leap_rl.core.determinism import check_precision

        check_precision("agent.classifier.precision", self.agent.classifier.precision)

    def __call__(self, spec: TaskSpec) -> Task:
        from leap_rl.learners.classifier.task import OmniglotTask

        suite = self.task.suite
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

    def shared_layout(self) -> Layout:
        from leap_rl.learners.classifier.classifier import make_classifier, shared_layout

        return shared_layout(make_classifier(CLASSES), self.agent.classifier.share)

    def random_initialization(self, seed: int) -> Tensor:
        import torch

        from leap_rl.learners.classifier.classifier import make_classifier
        from leap_rl.networks.encoders import initialize
        from leap_rl.networks.parameters import flatten_parameters

        network = make_classifier(CLASSES)
        initialize(network, torch.Generator().manual_seed(seed))
        return flatten_parameters(network).vector[: self.shared_layout().size].clone()
