"""Learners of data sets that know which set they learn: HAT's and Progressive Nets' common part.

Their shared parameters are those of all sets together, so that one set is learned after another
with `meta.method: pretraining` and `meta.batch_size: 1`; a set's last layer is carried along.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from torch import nn

from leap_rl.learners.classifier.classifier import FEATURES, Network
from leap_rl.learners.classifier.learner import Classifier
from leap_rl.learners.classifier.sets import ImageSetTask
from leap_rl.learners.config import AgentConfig
from leap_rl.learners.task import TaskSpec
from leap_rl.networks.encoders import blank
from leap_rl.tasks.config import TaskConfig
from leap_rl.tasks.suites import ImageSetsSuite


class TaskAwareNetwork(Network):
    """A network whose forward pass depends on the set, by its place among `sets`."""

    def __init__(self, encoder: nn.Module, *, place: int, classes: int) -> None:
        super().__init__()
        self.encoder = encoder
        self.head = nn.Linear(FEATURES, classes)
        self.place = place


class TaskAwareTask(ImageSetTask):
    """Learns one of several sets, with a network that knows which."""

    def __init__(
        self, spec: TaskSpec, *, sets: Sequence[str], given: Any, **arguments: Any
    ) -> None:
        self.sets, self.place, self.given = sets, sets.index(spec.game), given
        super().__init__(spec, **arguments)

    def network(self) -> TaskAwareNetwork:
        return blank(lambda: self.build(len(self.sets), self.given, self.place, self._data.classes))

    @staticmethod
    @abstractmethod
    def build(sets: int, given: Any, place: int, classes: int) -> TaskAwareNetwork:
        """Make the network, with any parameters."""


@dataclass(frozen=True, kw_only=True)
class TaskAware(Classifier):
    """Learns sets that `agent.options` names: all that it may meet, held-out ones too."""

    learns = ImageSetsSuite
    options = ("classifier", "options")
    differentiable = False
    makes: ClassVar[type[TaskAwareTask]]
    known: ClassVar[dict[str, Any]] = {}
    """Options besides `sets`, with their defaults."""

    @classmethod
    def check(cls, task: TaskConfig, agent: AgentConfig, env_processes: int) -> None:
        """Refuse options that it does not have, and sets that it is not told, too."""
        super().check(task, agent, env_processes)
        unknown = agent.options.keys() - {"sets", *cls.known}
        strange = set(task.resolved_games) - {*agent.options.get("sets", [])}
        if unknown or strange:
            raise ValueError(
                f"agent.options = {agent.options}: {cls.name} takes {', '.join(cls.known)}, and as "
                f"sets the names of all that it may meet, {sorted(strange)} among them"
            )

    @property
    def given(self) -> dict[str, Any]:
        own = {name: value for name, value in self.agent.options.items() if name != "sets"}
        return {**self.known, **own}

    def __call__(self, spec: TaskSpec) -> ImageSetTask:
        return self.makes(
            spec,
            sets=self.agent.options["sets"],
            given=self.given,
            **self.set_arguments(spec.game),
        )

    def network(self) -> Network:
        return blank(lambda: self.makes.build(len(self.agent.options["sets"]), self.given, 0, 1))
