"""A data set to classify: the paper's Multi-CV experiment, one task of it.

As in `task`, everything random is a function of the task's seed and of which update it is for, and
a snapshot is the parameters and the counts. The best validation error so far comes with it.

Dimensions: P flattened shared parameters, N images in a batch.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor

from leap_rl.core.choices import LossDifference
from leap_rl.core.seeding import Purpose, derive_seed
from leap_rl.learners.classifier.classifier import (
    Batch,
    ClassifierLearner,
    Metrics,
    Network,
    make_classifier,
)
from leap_rl.learners.config import ClassifierConfig
from leap_rl.learners.descent import DescentTask
from leap_rl.learners.task import Observe, Progress, TaskSpec, TaskState
from leap_rl.meta.gradient_path import Point
from leap_rl.tasks.images.config import ImagesConfig
from leap_rl.tasks.images.formats import Labelled
from leap_rl.tasks.images.sets import ImageSet

SIDE = 32
"""Height and width of what a network sees, in pixels."""

CHANNELS = 3
"""Gray images come three times."""

EVALUATED = 500
"""Images in a batch of evaluation, each normalized by its own statistics."""


class ImageSetTask(DescentTask):
    """Learns a data set, until its budget or its patience ends.

    Subclasses that have another `network` may have another loss (`training_metrics`), change the
    gradient between `backward` and the step (`adjust`), and what a step left (`after_step`).
    """

    def __init__(
        self,
        spec: TaskSpec,
        *,
        data: ImageSet,
        images: ImagesConfig,
        updates: int,
        config: ClassifierConfig,
        loss_difference: LossDifference = "next_batch",
    ) -> None:
        super().__init__(
            updates=updates,
            agent_steps_per_update=images.batch_size,
            loss_difference=loss_difference,
        )
        self._seed, self._data, self._images, self._config = spec.seed, data, images, config
        self.learner = ClassifierLearner(
            classes=data.classes,
            network=self.network(),
            share=config.share,
            lr=config.lr,
            head_generator=self._generator(Purpose.HEADS),
            precision=config.precision,
        )
        self._best = (math.inf, 0)  # validation error, and the update that had it
        self._end_batches = 0
        self._epoch: tuple[int, Tensor] = (-1, torch.empty(0))

    def network(self) -> Network:
        """Return the network, its parameters zero."""
        return make_classifier(self._data.classes, CHANNELS)

    def training_metrics(self, batch: Batch) -> Metrics:
        """Return how well a batch is classified, and the loss that the update descends."""
        return self.learner.metrics(batch)

    def adjust(self) -> None:
        """Change the gradient before the path sees it."""

    def after_step(self) -> None:
        """Change the parameters after a step."""

    @property
    def done(self) -> bool:
        patience = self._images.patience
        impatient = patience is not None and self._updates - self._best[1] >= patience
        return super().done or impatient

    def advance(self, observe: Observe) -> Progress:
        batch = self.batch(self._updates)
        metrics = self.training_metrics(batch)
        gradient = self.learner.backward(metrics.loss)
        self.adjust()
        loss = metrics.loss.detach()
        observe(self._point(self.learner.shared, loss, gradient))
        self.learner.step(self._rate(self._updates))
        self.after_step()
        self._count_update(lambda: self.learner.evaluate(batch).loss)
        losses = {"total": float(loss), "training_error": float(metrics.error)}
        every = self._config.validate_every or (self._images.patience and 1)
        validates = bool(every) and self._updates % every == 0
        if validates:
            self._validate(losses)
        if self.done:  # after patience was asked
            if not validates:
                self._validate(losses)
            if self._images.test:
                losses["test_error"] = self.evaluate(self._data.test)[1]
        return self._progress(losses)

    def end_point(self, *, with_grad: bool) -> Point:
        metrics = self.training_metrics(self.batch(self._updates + self._end_batches))
        self._end_batches += 1
        gradient = None
        if with_grad:
            gradient = self.learner.backward(metrics.loss)
            self.adjust()
        return self._point(self.learner.shared, metrics.loss.detach(), gradient)

    def evaluate(self, part: Labelled) -> tuple[float, float]:
        """Return the mean loss and the error of a part of the set."""
        loss = error = 0.0
        for batch in self._batches(part):
            metrics = self.learner.evaluate(batch)
            share = len(batch.labels) / len(part.labels)
            loss += share * float(metrics.loss)
            error += share * float(metrics.error)
        return loss, error

    def batch(self, update: int) -> Batch:
        """Return the batch of an update, from 0: images in a random order, all before any again."""
        size, count = self._images.batch_size, len(self._data.training.labels)
        places = range(update * size, (update + 1) * size)
        indices = torch.stack([self._order(place // count)[place % count] for place in places])
        images, labels = self._data.training
        return self._shown(Labelled(images[indices.numpy()], labels[indices.numpy()]))

    def named_parameters(self) -> dict[str, Tensor]:
        """Return copies of the parameters, named encoder.* and head.*."""
        return self.learner.flat.copies()

    def carry_over(self, state: Mapping[str, NDArray[Any]], shared: Tensor) -> None:
        super().carry_over(state, shared)
        self._best = (math.inf, 0)

    def _load_shared(self, shared: Tensor) -> None:
        self.learner.load_shared(shared)

    def _own_state(self) -> TaskState:
        best, update = self._best
        parameters = self.learner.parameters.numpy().copy()
        return {"parameters": parameters, "best": np.array([best, update], np.float64)}

    def _restore_own(self, state: Mapping[str, NDArray[Any]]) -> None:
        self.learner.load_parameters(torch.from_numpy(state["parameters"].copy()))
        self._best = (float(state["best"][0]), int(state["best"][1]))

    def _validate(self, losses: dict[str, float]) -> None:
        losses["validation"], error = self.evaluate(self._data.validation)
        losses["validation_error"] = error
        if error < self._best[0]:
            self._best = (error, self._updates)

    def _rate(self, update: int) -> float:
        """Return the share of the learning rate that an update takes."""
        if self._images.schedule == "constant":
            return 1.0
        return 0.5 * (1.0 + math.cos(math.pi * update / self._budget))

    def _batches(self, part: Labelled) -> Iterator[Batch]:
        # Even ones: the statistics of a few images left over would say little.
        for places in np.array_split(
            np.arange(len(part.labels)), -(-len(part.labels) // EVALUATED)
        ):
            yield self._shown(Labelled(part.images[places], part.labels[places]))

    def _shown(self, part: Labelled) -> Batch:
        """Return images as a network sees them, float32 [N, 3, 32, 32], normalized."""
        pixels = torch.from_numpy(part.images).permute(0, 3, 1, 2).to(torch.float32).div_(255.0)
        margin = (SIDE - pixels.shape[2]) // 2
        pixels = F.pad(pixels, [margin] * 4).expand(-1, CHANNELS, -1, -1)
        mean, deviation = (
            torch.tensor(values).view(1, -1, 1, 1)
            for values in (self._data.mean, self._data.deviation)
        )
        return Batch((pixels - mean) / deviation, torch.from_numpy(part.labels))

    def _order(self, epoch: int) -> Tensor:
        if self._epoch[0] != epoch:
            generator = self._generator(Purpose.DATA, "order", epoch)
            count = len(self._data.training.labels)
            self._epoch = (epoch, torch.randperm(count, generator=generator))
        return self._epoch[1]

    def _generator(self, purpose: Purpose, *path: int | str) -> torch.Generator:
        return torch.Generator().manual_seed(derive_seed(self._seed, purpose, *path))
