"""Options of Omniglot's alphabets. Importing this imports no torch."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

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
