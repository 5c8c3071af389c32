"""What can be set about Omniglot tasks. Importing this costs no import of torch."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal, get_args

from leap_rl.core.processor import Precision

CLASSES = 20
"""Characters in a task. Paper; alphabets with fewer are left out."""

TRAINING_IMAGES = 15
"""Images of a character to learn from."""

VALIDATION_IMAGES = 5
"""Images of a character to validate on: the other five of the twenty that were published."""

PUBLISHED_HELD_OUT = 10
MOST_PRETRAINING = 25

SOURCE = "https://github.com/brendenlake/omniglot/tree/master/python"
"""Where the images are published."""

POOLS = ("pretraining", "held_out", "all")
"""Names that stand for several alphabets in task.games."""

Share = Literal["all_but_last", "all"]
"""Which parameters the tasks share."""


@dataclass(frozen=True)
class OmniglotConfig:
    """Alphabets to classify. "Paper" is Leap's appendix "Experiment details: Omniglot"."""

    updates: int = 100
    """Updates in a task's budget. Paper ("training steps"; 5 in meta-training by MAML)."""

    batch_size: int = 20
    """Images in an update's batch. Paper."""

    lr: float = 0.1
    """Learning rate of the task's gradient descent, without momentum. Paper."""

    augment: bool = True
    """Turn, scale and shift each image at random whenever it is shown. Paper."""

    share: Share = "all_but_last"
    """Parameters that are learned across tasks. all_but_last: the convolutions; the last layer
    starts at random in each task. all: the last layer too, as in the authors' released code."""

    precision: Precision = "float32"
    """What the network computes in; parameters, gradients, losses and the path's sums are float32.
    bfloat16 takes 0.6 of the time on processors with units for it (AMX or AVX512_BF16)."""

    validate_every: int | None = None
    """Updates between two validations, each a pass over the task's 100 held-back images. None
    validates once, after the last update."""

    split: int = 0
    """Which of the many ways to part the data: it draws the held-out alphabets, each alphabet's 20
    characters, and the five drawers whose images validate. The paper averages over such draws."""

    held_out: int | Literal["auto"] = "auto"
    """Alphabets in the pool held_out. auto: 10 (paper), or a third of those that the data has, if
    that is less."""

    pretraining: int | Literal["auto"] = "auto"
    """Alphabets in the pool pretraining: the first of a fixed order, so that more contain fewer.
    auto: all that are not held out, up to the paper's 25."""

    def __post_init__(self) -> None:
        for name in ("updates", "batch_size", "validate_every", "held_out", "pretraining"):
            value = getattr(self, name)
            if value not in (None, "auto") and value < 1:
                raise ValueError(f"task.omniglot.{name} = {value}: must be at least 1")
        if self.split < 0:
            raise ValueError(f"task.omniglot.split = {self.split}: must be at least 0")
        if not (math.isfinite(self.lr) and self.lr > 0):
            raise ValueError(f"agent.classifier.lr = {self.lr}: must be greater than 0 and finite")
        for name, choices in (("share", get_args(Share)), ("precision", get_args(Precision))):
            if (value := getattr(self, name)) not in choices:
                raise ValueError(
                    f"task.omniglot.{name} = {value!r}: must be one of {', '.join(choices)}"
                )
