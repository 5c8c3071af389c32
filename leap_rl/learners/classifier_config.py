"""Options of the classifier. Importing this imports no torch."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal, get_args

from leap_rl.core.determinism import Precision

ClassifierShare = Literal["all_but_last", "all"]
"""Which parameters the tasks share."""


@dataclass(frozen=True)
class ClassifierConfig:
    """Plain gradient descent on images. "Paper" is Leap's appendix on Omniglot."""

    lr: float = 0.1
    """Learning rate of the task's gradient descent, without momentum. Paper."""

    augment: bool = True
    """Turn, scale and shift each image at random whenever it is shown. Paper."""

    share: ClassifierShare = "all_but_last"
    """Parameters that are learned across tasks. all_but_last: the convolutions; the last layer
    starts at random in each task. all: the last layer too, as in the authors' released code."""

    precision: Precision = "float32"
    """What the network computes in; parameters, gradients, losses and the path's sums are float32.
    bfloat16 takes 0.6 of the time on processors with units for it (AMX or AVX512_BF16)."""

    validate_every: int | None = None
    """Updates between two validations, each a pass over the task's 100 held-back images. None
    validates once, after the last update."""

    def __post_init__(self) -> None:
        if self.validate_every is not None and self.validate_every < 1:
            raise ValueError(
                f"agent.classifier.validate_every = {self.validate_every}: must be at least 1"
            )
        if not (math.isfinite(self.lr) and self.lr > 0):
            raise ValueError(f"agent.classifier.lr = {self.lr}: must be greater than 0 and finite")
        choices = {"share": get_args(ClassifierShare), "precision": get_args(Precision)}
        for name, known in choices.items():
            if (value := getattr(self, name)) not in known:
                raise ValueError(
                    f"agent.classifier.{name} = {value!r}: must be one of {', '.join(known)}"
                )
