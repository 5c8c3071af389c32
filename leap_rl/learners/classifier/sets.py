"""A data set to classify: the paper's Multi-CV experiment, one task of it.

N: images.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor

from leap_rl.learners.classifier.classifier import Batch, Network, make_classifier
from leap_rl.learners.classifier.task import ClassifierTask
from leap_rl.learners.task import TaskSpec, TaskState
from leap_rl.tasks.images.config import ImagesConfig
from leap_rl.tasks.images.formats import Labelled
from leap_rl.tasks.images.sets import ImageSet

SIDE, CHANNELS = 32, 3
"""Of what a network sees: gray images come three times."""

EVALUATED = 500
"""Images in a batch of evaluation, at most, normalized by their own statistics."""


class ImageSetTask(ClassifierTask):
    """Learns a data set, until its budget or its patience ends; the paper's network by default."""

    def __init__(
        self,
        spec: TaskSpec,
        *,
        data: ImageSet,
        images: ImagesConfig,
        network: Network | None = None,
        **others: Any,
    ) -> None:
        super().__init__(
            spec,
            classes=data.classes,
            network=network or make_classifier(data.classes, CHANNELS),
            agent_steps_per_update=images.batch_size,
            **others,
        )
        self.data, self.images = data, images
        self._validate_every = self.config.validate_every or (1 if images.patience else None)
        self._best = (math.inf, 0)  # validation error, and the update that had it

    @property
    def done(self) -> bool:
        patience = self.images.patience
        return super().done or (patience is not None and self._updates - self._best[1] >= patience)

    def rate(self) -> float:
        """Return half a wave of a cosine over the budget (Loshchilov and Hutter 2017, eq. 5)."""
        if self.images.schedule == "constant":
            return 1.0
        return 0.5 * (1.0 + math.cos(math.pi * self._updates / self._budget))

    def batch(self, update: int) -> Batch:
        return self.shown(self.data.training, self._places(update, len(self.data.training.labels)))

    def validate(self) -> tuple[float, float]:
        loss, error = self.evaluate(self.data.validation)
        if error < self._best[0]:
            self._best = (error, self._updates)
        return loss, error

    def final_losses(self) -> dict[str, float]:
        return {"test_error": self.evaluate(self.data.test)[1]} if self.images.test else {}

    def evaluate(self, part: Labelled) -> tuple[float, float]:
        """Return the mean loss and the error of a part of the set."""
        loss = error = 0.0
        count = len(part.labels)
        # Even batches: the statistics of a few images left over would say little.
        for places in torch.arange(count).tensor_split(-(-count // EVALUATED)):
            metrics = self.learner.evaluate(self.shown(part, places))
            loss += len(places) / count * float(metrics.loss)
            error += len(places) / count * float(metrics.error)
        return loss, error

    def shown(self, part: Labelled, places: Tensor) -> Batch:
        """Return images as a network sees them, float32 [N, 3, 32, 32], normalized."""
        images, labels = part.at(places.numpy())
        pixels = torch.from_numpy(images).permute(0, 3, 1, 2).float().div_(255)
        margin = (SIDE - pixels.shape[2]) // 2
        pixels = F.pad(pixels, [margin] * 4).expand(-1, CHANNELS, -1, -1)
        mean, deviation = (
            torch.tensor(values).view(1, -1, 1, 1)
            for values in (self.data.mean, self.data.deviation)
        )
        return Batch((pixels - mean) / deviation, torch.from_numpy(labels))

    def carry_over(self, state: Mapping[str, NDArray[Any]], shared: Tensor) -> None:
        super().carry_over(state, shared)
        self._best = (math.inf, 0)

    def _own_state(self) -> TaskState:
        return {**super()._own_state(), "best": np.array(self._best, np.float64)}

    def _restore_own(self, state: Mapping[str, NDArray[Any]]) -> None:
        super()._restore_own(state)
        self._best = (float(state["best"][0]), int(state["best"][1]))
