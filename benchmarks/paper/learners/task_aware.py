"""Learners of data sets that know which set they learn: HAT's and Progressive Nets' common part.

Their shared parameters are those of all sets together, so that one set is learned after another
with `meta.method: pretraining` and `meta.batch_size: 1`; a set's last layer is carried along.
"""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor, nn

from leap_rl.learners.classifier.classifier import FEATURES, Network
from leap_rl.learners.classifier.learner import Classifier
from leap_rl.learners.classifier.sets import ImageSetTask
from leap_rl.learners.config import AgentConfig
from leap_rl.learners.task import TaskSpec
from leap_rl.networks.encoders import blank, initialize
from leap_rl.networks.parameters import flatten_parameters
from leap_rl.tasks.config import TaskConfig
from leap_rl.tasks.suites import ImageSetsSuite


class TaskAwareNetwork(Network):
    """A network whose forward pass depends on the set, by its place among all."""

    def __init__(self, encoder: nn.Module, place: int, classes: int) -> None:
        super().__init__()
        self.encoder, self.head, self.place = encoder, nn.Linear(FEATURES, classes), place


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
                f"that it may meet, and {sorted(strange)} of task.games among them"
            )

    @property
    def sets(self) -> list[str]:
        return list(self.agent.options["sets"])

    @abstractmethod
    def build(self, place: int, classes: int) -> Network:
        """Make a set's network, with any parameters."""

    @abstractmethod
    def draw(self, name: str, parameter: nn.Parameter, generator: torch.Generator) -> None:
        """Draw a parameter that is of no layer of torch's."""

    def __call__(self, spec: TaskSpec) -> ImageSetTask:
        arguments, place = self.set_arguments(spec.game), self.sets.index(spec.game)
        network = blank(lambda: self.build(place, arguments["data"].classes))
        return self.makes(spec, network=network, **arguments)

    def network(self) -> Network:
        return blank(lambda: self.build(0, 1))

    def random_initialization(self, seed: int) -> Tensor:
        network, generator = self.network(), torch.Generator().manual_seed(seed)
        initialize(network, generator)
        for name, parameter in network.named_parameters():
            self.draw(name.rpartition(".")[2], parameter, generator)
        return flatten_parameters(network).vector[: self.shared_layout().size].clone()
