"""Images to classify as a task, and the paper's first experiment: an alphabet, one task of it.

Everything random is a function of the task's seed and of which update it is for: the order of the
images, and how each is turned, scaled and shifted. A task's snapshot is therefore its parameters
and its count of updates.

Dimensions: P flattened shared parameters, N images in a batch.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from leap_rl.core.choices import LossDifference
from leap_rl.core.seeding import Purpose, derive_seed
from leap_rl.learners.classifier.augmentation import random_affine
from leap_rl.learners.classifier.classifier import Batch, ClassifierLearner, Metrics, Network
from leap_rl.learners.classifier.unrolled import gradient_through_descent
from leap_rl.learners.config import ClassifierConfig
from leap_rl.learners.descent import DescentTask
from leap_rl.learners.task import Observe, Progress, TaskSpec, TaskState
from leap_rl.meta.gradient_path import Point
from leap_rl.tasks.images.config import CLASSES, TRAINING_IMAGES, VALIDATION_IMAGES


class ClassifierTask(DescentTask):
    """Learns to classify images; what images, and which are a batch, subclasses say."""

    def __init__(
        self,
        spec: TaskSpec,
        *,
        classes: int,
        network: Network | None = None,
        config: ClassifierConfig,
        **budget: Any,
    ) -> None:
        super().__init__(**budget)
        self._seed = spec.seed
        self.config = config
        self._validate_every = config.validate_every
        self.learner = ClassifierLearner(
            classes=classes,
            network=network,
            share=config.share,
            lr=config.lr,
            head_generator=self._generator(Purpose.HEADS),
            precision=config.precision,
        )
        self._end_batches = 0
        self._epoch: tuple[int, Tensor] = (-1, torch.empty(0))

    @abstractmethod
    def batch(self, update: int) -> Batch:
        """Return the batch of an update, from 0: images in a random order, all before any again."""

    @abstractmethod
    def validate(self) -> tuple[float, float]:
        """Return the loss and the error on held-back images."""

    def rate(self) -> float:
        """Return the share of the learning rate that the next update takes."""
        return 1.0

    def training_metrics(self, batch: Batch) -> Metrics:
        """Return how well a batch is classified, with the loss that an update descends."""
        return self.learner.metrics(batch)

    def backward(self, loss: Tensor) -> Tensor:
        """Return the gradient's shared part, [P], which the update will descend."""
        return self.learner.backward(loss)

    def step(self) -> None:
        self.learner.step(self.rate())

    def final_losses(self) -> dict[str, float]:
        """Return what is measured once, at the end, besides validation."""
        return {}

    def advance(self, observe: Observe) -> Progress:
        batch = self.batch(self._updates)
        metrics = self.training_metrics(batch)
        gradient = self.backward(metrics.loss)
        loss = metrics.loss.detach()
        observe(self._point(self.learner.shared, loss, gradient))
        self.step()
        self._count_update(lambda: self.learner.evaluate(batch).loss)
        losses = {"total": float(loss), "training_error": float(metrics.error)}
        every = self._validate_every
        if self.done or (every is not None and self._updates % every == 0):
            losses["validation"], losses["validation_error"] = self.validate()
        if self.done:  # validation may have changed it
            losses |= self.final_losses()
        return self._progress(losses)

    def end_point(self, *, with_grad: bool) -> Point:
        metrics = self.training_metrics(self.batch(self._updates + self._end_batches))
        self._end_batches += 1
        gradient = self.backward(metrics.loss) if with_grad else None
        return self._point(self.learner.shared, metrics.loss.detach(), gradient)

    def named_parameters(self) -> dict[str, Tensor]:
        """Return copies of the parameters, named encoder.* and head.*."""
        return self.learner.flat.copies()

    def _load_shared(self, shared: Tensor) -> None:
        self.learner.load_shared(shared)

    def _own_state(self) -> TaskState:
        return {"parameters": self.learner.parameters.numpy().copy()}

    def _restore_own(self, state: Mapping[str, NDArray[Any]]) -> None:
        self.learner.load_parameters(torch.from_numpy(state["parameters"].copy()))

    def _places(self, update: int, count: int) -> Tensor:
        """Return which of so many images an update's batch has."""
        size = self._agent_steps_per_update
        places = range(update * size, (update + 1) * size)
        return torch.stack([self._order(place // count, count)[place % count] for place in places])

    def _order(self, epoch: int, count: int) -> Tensor:
        if self._epoch[0] != epoch:
            generator = self._generator(Purpose.DATA, "order", epoch)
            self._epoch = (epoch, torch.randperm(count, generator=generator))
        return self._epoch[1]

    def _generator(self, purpose: Purpose, *path: int | str) -> torch.Generator:
        return torch.Generator().manual_seed(derive_seed(self._seed, purpose, *path))


class OmniglotTask(ClassifierTask):
    """Learns to tell 20 characters of one alphabet.

    `images` are uint8 [20 characters, 20 drawers, H, W], the last five drawers for validation. If
    `second_order`, the end's gradient is by the start, through all updates, on the validation
    images ("MAML differs from Leap in that it evaluates the meta objective on a held-out test
    set"), rather than by the end, on one more batch.
    """

    def __init__(
        self,
        spec: TaskSpec,
        *,
        images: NDArray[np.uint8],
        updates: int,
        batch_size: int,
        config: ClassifierConfig,
        loss_difference: LossDifference = "next_batch",
        second_order: bool = False,
    ) -> None:
        super().__init__(
            spec,
            classes=CLASSES,
            config=config,
            updates=updates,
            agent_steps_per_update=batch_size,
            loss_difference=loss_difference,
        )
        self._second_order = second_order
        shown = torch.from_numpy(images.astype(np.float32)).div_(255.0)
        training, validating = torch.split(shown, [TRAINING_IMAGES, VALIDATION_IMAGES], dim=1)
        self._training = training.reshape(-1, 1, *shown.shape[2:])
        self._labels = torch.arange(CLASSES).repeat_interleave(TRAINING_IMAGES)
        self._validation = Batch(
            # Turned once and for all: the same images then judge a task at any time.
            self._augmented(validating.reshape(-1, 1, *shown.shape[2:]), "validation"),
            torch.arange(CLASSES).repeat_interleave(VALIDATION_IMAGES),
        )
        self._start: Tensor | None = None

    def validate(self) -> tuple[float, float]:
        validation = self.learner.evaluate(self._validation)
        return float(validation.loss), float(validation.error)

    def end_point(self, *, with_grad: bool) -> Point:
        """Return the last point with one more batch's loss, or what MAML asks for in its place."""
        return (
            self._end_by_the_start()
            if self._second_order
            else super().end_point(with_grad=with_grad)
        )

    def _load_shared(self, shared: Tensor) -> None:
        super()._load_shared(shared)
        if self._second_order:
            self._start = self.learner.parameters.clone()

    def _own_state(self) -> TaskState:
        state = super()._own_state()
        return state if self._start is None else {**state, "start": self._start.numpy().copy()}

    def _restore_own(self, state: Mapping[str, NDArray[Any]]) -> None:
        super()._restore_own(state)
        if self._second_order:
            self._start = torch.from_numpy(state["start"].copy())

    def batch(self, update: int) -> Batch:
        indices = self._places(update, len(self._training))
        images = self._augmented(self._training[indices], "training", update)
        return Batch(images, self._labels[indices])

    def _augmented(self, images: Tensor, *path: int | str) -> Tensor:
        if not self.config.augment:
            return images
        return random_affine(images, self._generator(Purpose.DATA, "augmentation", *path))

    def _end_by_the_start(self) -> Point:
        assert self._start is not None
        gradient, loss = gradient_through_descent(
            self.learner.loss_at,
            self._start,
            batches=[self.batch(update) for update in range(self._updates)],
            last_batch=self._validation,
            lr=self.config.lr,
        )
        gradient = gradient.detach()[: self.learner.shared_size].contiguous()
        return self._point(self.learner.shared, loss.detach(), gradient)
