"""The classifier of few-shot tasks, and how it learns: by plain gradient descent.

"This model stacks a module, comprised of a 3 × 3 convolution with 64 filters, followed by
batch-normalization, ReLU activation and 2 × 2 max-pooling, four times" (Leap's appendix "Experiment
details: Omniglot", after Vinyals et al. 2016).

P: flattened shared parameters. N: images in a batch.
"""

from __future__ import annotations

from collections import OrderedDict
from functools import partial
from typing import Literal, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.func import functional_call

from leap_rl.core.determinism import Precision
from leap_rl.networks.encoders import blank, initialize
from leap_rl.networks.parameters import Layout, flatten_parameters, layout_of

Share = Literal["all_but_last", "all"]

FILTERS = 64
MODULES = 4
LAYERS = 4
"""Of a module."""
FEATURES = 4 * FILTERS
"""Of images of 32 × 32."""


class Network(nn.Module):
    """A network to train: an `encoder`, and the `head` on top of it."""

    encoder: nn.Module
    head: nn.Linear


class Classifier(Network):
    """An `encoder` and a last layer, the `head`. Parameters are zero until drawn or loaded.

    Images of one channel are 28 × 28, those of three are 32 × 32 and leave 2 × 2 features a filter.
    """

    encoder: nn.Sequential

    def __init__(self, classes: int, channels: int = 1) -> None:
        super().__init__()
        layers: OrderedDict[str, nn.Module] = OrderedDict()
        for i in range(1, MODULES + 1):
            inputs = channels if i == 1 else FILTERS
            # No bias: the normalization would cancel it.
            layers[f"conv{i}"] = nn.Conv2d(inputs, FILTERS, 3, padding=1, bias=False)
            # Batch statistics, in validation too: tasks are too short for running means, and the
            # path must be a function of the parameters alone.
            layers[f"norm{i}"] = nn.BatchNorm2d(FILTERS, track_running_stats=False)
            # The bits of the paper's order, ReLU then pooling, since ReLU is monotonic: the same
            # numbers and gradients from a quarter of the elements.
            layers[f"pool{i}"] = nn.MaxPool2d(2)
            layers[f"relu{i}"] = nn.ReLU()
        layers["flatten"] = nn.Flatten()
        self.encoder = nn.Sequential(layers)
        self.head = nn.Linear(FILTERS if channels == 1 else FEATURES, classes)

    def forward(self, images: Tensor) -> Tensor:
        """Return the logits [N, classes] of images, float32 [N, channels, height, width]."""
        channels, height, width = images.shape[1:]
        # The same memory as "channels last", which the layers keep: a third less time on a CPU.
        if channels == 1:
            strides = (height * width, 1, width, 1)
            images = images.contiguous().as_strided(images.shape, strides)
        else:
            images = images.contiguous(memory_format=torch.channels_last)
        logits: Tensor = self.head(self.encoder(images))
        return logits


def make_classifier(classes: int, channels: int = 1) -> Classifier:
    """Return the network, its parameters zero; draws no random number."""
    return blank(lambda: Classifier(classes, channels))


class Batch(NamedTuple):
    """Images and their classes."""

    images: Tensor
    """float32 [N, 1, H, W], 0 for paper and 1 for ink."""
    labels: Tensor
    """int64 [N], the classes' numbers."""


class Metrics(NamedTuple):
    """How well a batch is classified."""

    loss: Tensor
    """Mean cross-entropy, 0-d; the f of the task's gradient path."""
    error: Tensor
    """Share of the images that are taken for another class, float64, 0-d."""


class ClassifierLearner:
    """A network, its parameters in one vector, and gradient descent on them.

    One update, with the gradient path in the caller's hands::

        metrics = learner.metrics(batch)
        gradient = learner.backward(metrics.loss)
        path.observe(learner.shared, metrics.loss.detach(), gradient)
        learner.step()

    The parameters and the gradient of an update stay readable until the next one is done. Between
    `step` and the next `backward` the learner is its `parameters` and nothing else.

    `flat` has all parameters and gradients as vectors; the first P are the shared ones.
    """

    def __init__(
        self,
        *,
        classes: int,
        network: Network | None = None,
        share: Share,
        lr: float,
        head_generator: torch.Generator,
        precision: Precision = "float32",
    ) -> None:
        """Draw the last layer from `head_generator`; the encoder is zero until `load_shared`.

        The network is Omniglot's unless another is given. `share` says which parameters are the
        shared ones. bfloat16 casts as torch's autocast does.
        """
        self._lr = lr
        self._casting = partial(
            torch.autocast, "cpu", dtype=torch.bfloat16, enabled=precision == "bfloat16"
        )
        self.network = network or make_classifier(classes)
        initialize(self.network.head, head_generator)
        self.flat = flatten_parameters(self.network)
        self.shared_size = shared_layout(self.network, share).size

    @property
    def shared(self) -> Tensor:
        return self.flat.vector[: self.shared_size]

    @property
    def parameters(self) -> Tensor:
        return self.flat.vector

    def load_shared(self, theta: Tensor) -> None:
        assert theta.shape == self.shared.shape, (tuple(theta.shape), self.shared_size)
        self.shared.copy_(theta)

    def load_parameters(self, vector: Tensor) -> None:
        """Copy all parameters in; ValueError if they are those of another network."""
        if vector.shape != self.flat.vector.shape:
            raise ValueError(
                f"parameters: {tuple(vector.shape)}, and this network's are "
                f"{tuple(self.flat.vector.shape)}; they are another network's"
            )
        self.flat.vector.copy_(vector)

    def metrics(self, batch: Batch, *more: float) -> Metrics:
        """Return how well a batch is classified; `more` is what else the network takes."""
        with self._casting():
            logits = self.network(batch.images, *more)
        return metrics(logits.to(self.parameters.dtype), batch.labels)

    def backward(self, loss: Tensor) -> Tensor:
        """Return the gradient's shared part, [P], a view until the next but one."""
        self.flat.zero_grad()
        torch.autograd.backward(loss)
        return self.flat.grad[: self.shared_size]

    def step(self, scale: float = 1.0) -> None:
        """Take one step of gradient descent: θ − scale·lr·∇f."""
        flat = self.flat
        torch.sub(flat.vector, flat.grad, alpha=scale * self._lr, out=flat.spare)
        flat.swap()

    @torch.no_grad()
    def evaluate(self, batch: Batch) -> Metrics:
        return self.metrics(batch)

    def loss_at(self, vector: Tensor, batch: Batch) -> Tensor:
        """Return the loss of a batch at other parameters, as a function that torch.func takes."""
        with self._casting():
            logits = functional_call(self.network, self.flat.layout.named(vector), (batch.images,))
        return metrics(logits.to(vector.dtype), batch.labels).loss


def metrics(logits: Tensor, labels: Tensor) -> Metrics:
    """Return how well logits [N, classes] say the labels [N]."""
    wrong = logits.detach().argmax(dim=1) != labels
    return Metrics(F.cross_entropy(logits, labels), wrong.double().mean())


def shared_layout(network: Network, share: Share) -> Layout:
    """Return the layout of a classifier's shared part."""
    return layout_of(network if share == "all" else network.encoder)
