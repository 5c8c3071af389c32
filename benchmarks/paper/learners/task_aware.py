"""Learners of data sets that know which set they learn: HAT's and Progressive Nets' common part.

Their shared parameters are those of all sets together, so that one set is learned after another
with `meta.method: pretraining` and `meta.batch_size: 1`; a set's last layer is carried along.
"""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor, nn

from leap_rl.learners.classifier.classifier import FEATURES, Network
from leap_rl.learners.classifier.learner import Classifier
from leap_rl.learners.classifier.sets import ImageSetTask
from leap_rl.learners.config import AgentConfig
from leap_rl.learners.task import TaskSpec
from leap_rl.networks.encoders import blank
from leap_rl.tasks.config import TaskConfig
from leap_rl.tasks.suites import ImageSetsSuite


class TaskAwareNetwork(Network):
    """An encoder that knows its set, and the set's last layer."""

    def __init__(self, encoder: nn.Module, classes: int) -> None:
        super().__init__()
        self.encoder, self.head = encoder, nn.Linear(FEATURES, classes)

    def forward(self, images: Tensor, *more: float) -> Tensor:
        logits: Tensor = self.head(self.encoder(images, *more))
        return logits


@dataclass(frozen=True, kw_only=True)
class TaskAware(Classifier):
    """Learns the sets that `agent.options` names as `sets`: all that it may meet."""

    learns = ImageSetsSuite
    options = ("classifier", "options")
    differentiable = False
    makes: ClassVar[type[ImageSetTask]] = ImageSetTask

    @classmethod
    def check(cls, task: TaskConfig, agent: AgentConfig, env_processes: int) -> None:
        """Refuse other options, and sets that it is not told, too."""
        super().check(task, agent, env_processes)
        strange = {*task.resolved_games} - {*agent.options.get("sets", [])}
        if strange or agent.options.keys() != {"sets"}:
            raise ValueError(
                f"agent.options = {agent.options}: {cls.name} takes sets alone, the names of all "
                f"that it may meet; of task.games it lacks {sorted(strange)}"
            )

    @property
    def sets(self) -> list[str]:
        return list(self.agent.options["sets"])

    @abstractmethod
    def encoder(self, place: int) -> nn.Module:
        """Make the encoder of all sets for the one at a place among them, with any parameters."""

    def __call__(self, spec: TaskSpec) -> ImageSetTask:
        arguments, place = self.set_arguments(spec.game), self.sets.index(spec.game)
        classes = arguments["data"].classes
        network = blank(lambda: TaskAwareNetwork(self.encoder(place), classes))
        return self.makes(spec, network=network, **arguments)

    def network(self) -> Network:
        return blank(lambda: TaskAwareNetwork(self.encoder(0), 1))
