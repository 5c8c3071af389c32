"""Options of images to classify. Importing this imports no torch."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal, get_args

CLASSES = 20
"""Characters in a task. Paper; alphabets with fewer are left out."""

TRAINING_IMAGES = 15
"""Images of a character to learn from."""

VALIDATION_IMAGES = 5
"""Images of a character to validate on: the other five of the twenty that were published."""

PUBLISHED_HELD_OUT = 10
MOST_PRETRAINING = 25

SOURCE = "https://github.com/brendenlake/omniglot/tree/master/python"

POOLS = ("pretraining", "held_out", "all")
"""Names that stand for several alphabets in task.games."""


@dataclass(frozen=True)
class OmniglotConfig:
    """Alphabets to classify. "Paper" is Leap's appendix "Experiment details: Omniglot"."""

    updates: int = 100
    """Updates in a task's budget. Paper ("training steps"; 5 in meta-training by MAML)."""

    batch_size: int = 20
    """Images in an update's batch. Paper."""

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
        for name in ("updates", "batch_size", "held_out", "pretraining"):
            value = getattr(self, name)
            if value != "auto" and value < 1:
                raise ValueError(f"task.omniglot.{name} = {value}: must be at least 1")
        if self.split < 0:
            raise ValueError(f"task.omniglot.split = {self.split}: must be at least 0")


Schedule = Literal["constant", "cosine"]


@dataclass(frozen=True)
class ImagesConfig:
    """Data sets to classify, for task.kind = images. "Paper" is Leap's appendix on Multi-CV."""

    epochs: float = 1.0
    """Passes over a set's training images, a budget that differs from set to set. Paper."""

    updates: int | None = None
    """Updates in a task's budget, in place of epochs."""

    batch_size: int = 32
    """Images in an update's batch. Paper."""

    schedule: Schedule = "cosine"
    """How the rate agent.classifier.lr goes over a task's budget. cosine: down to 0 in half a wave
    (paper; its period is not given). constant: not at all."""

    validation: float = 0.1
    """Share of a set's training images that validate. Not given in the paper."""

    patience: int | None = None
    """Stop a task after so many updates without a better validation error, which is then measured
    after each update, or as agent.classifier.validate_every says and before it would stop. The
    paper's is 10. Tasks that judge meta-training (validation) have none. None: learn the whole
    budget."""

    limit: int | None = None
    """Training images of a set that are used, the same ones in every run, and as many of its test
    images at most; validation is a share of the former. None: all."""

    test: bool = True
    """Measure the error on the set's test images, once, at a task's end. Meta-training needs
    none."""

    def __post_init__(self) -> None:
        for name in ("updates", "batch_size", "patience", "limit"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise ValueError(f"task.images.{name} = {value}: must be at least 1")
        if not (math.isfinite(self.epochs) and self.epochs > 0):
            raise ValueError(
                f"task.images.epochs = {self.epochs}: must be greater than 0 and finite"
            )
        if self.schedule not in get_args(Schedule):
            raise ValueError(
                f"task.images.schedule = {self.schedule!r}: must be one of "
                f"{', '.join(get_args(Schedule))}"
            )
        if not 0 < self.validation < 1:
            raise ValueError(
                f"task.images.validation = {self.validation}: must lie between 0 and 1, so that "
                "images are left to learn from and to validate on"
            )
