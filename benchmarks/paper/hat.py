"""Hard attention to the task (HAT; Serrà et al., ICML 2018), with the Leap paper's revisits.

    hᵢ = aᵢ ⊙ relu(pool(norm(Wᵢ hᵢ₋₁))),    aᵢ = σ(s eᵢ)    a mask a layer and set

While a set is learned, s rises from 1/s_max to s_max over an epoch. A weight's gradient is scaled
by 1 − min(Aᵢ, Aᵢ₋₁), with A the largest mask of the other sets that were learned: on a revisit the
set's own is no part of it. No set's mask is trained but its own, and the loss gains
λ Σ a (1 − A) / Σ (1 − A), so that it takes few units that no other set has.

i: layers. F: filters of a layer. T: sets.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from benchmarks.paper.task_aware import TaskAware, TaskAwareNetwork, TaskAwareTask
from leap_rl.learners.classifier.classifier import (
    FILTERS,
    MODULES,
    Batch,
    Classifier,
    Metrics,
    metrics,
)
from leap_rl.networks.encoders import initialize
from leap_rl.networks.parameters import flatten_parameters

LARGEST_EXPONENT = 50.0
"""|s e| is clamped to this in the compensation, as in the authors' code."""

LARGEST_EMBEDDING = 6.0
"""|e| is clamped to this after each step, as in the authors' code."""


class MaskedEncoder(nn.Module):
    """The paper's encoder, with the embeddings of all sets."""

    def __init__(self, sets: int) -> None:
        super().__init__()
        self.embeddings = nn.Parameter(torch.empty(sets, MODULES, FILTERS))
        self.learned = nn.Parameter(torch.empty(sets))
        """1 for sets that were learned, 0 for others; no gradient reaches it."""
        self.layers = Classifier(1, channels=3).encoder

    def masks(self, place: int, s: float) -> Tensor:
        """Return a set's masks a, [layers, F]."""
        return torch.sigmoid(s * self.embeddings[place])

    @torch.no_grad()
    def taken(self, place: int, s: float) -> Tensor:
        """Return A, the largest mask of the other sets that were learned, [layers, F]."""
        others = [one for one in range(len(self.learned)) if one != place and self.learned[one] > 0]
        return torch.stack(
            [0.0 * self.embeddings[0], *(self.masks(one, s) for one in others)]
        ).amax(0)

    def forward(self, images: Tensor, masks: Tensor) -> Tensor:
        hidden = images.contiguous(memory_format=torch.channels_last)
        for i, mask in enumerate(masks, start=1):
            for layer in ("conv", "norm", "pool", "relu"):
                hidden = self.layers.get_submodule(f"{layer}{i}")(hidden)
            hidden = hidden * mask[:, None, None]
        return hidden.flatten(1)


class MaskedNetwork(TaskAwareNetwork):
    """The masked encoder and a set's last layer."""

    encoder: MaskedEncoder

    def __init__(self, sets: int, given: Mapping[str, Any], place: int, classes: int) -> None:
        super().__init__(MaskedEncoder(sets), place=place, classes=classes)
        self.s_max = float(given["s_max"])

    def forward(self, images: Tensor, s: float | None = None) -> Tensor:
        """Return the logits; without an s, with the masks of evaluation."""
        masks = self.encoder.masks(self.place, self.s_max if s is None else s)
        logits: Tensor = self.head(self.encoder(images, masks))
        return logits


def compensation(embedding: Tensor, s: float, s_max: float) -> Tensor:
    """Return what an embedding's gradient is multiplied by, as if s had been 1 (section 2.5)."""
    steep = torch.cosh((s * embedding).clamp(-LARGEST_EXPONENT, LARGEST_EXPONENT)) + 1.0
    return (s_max / s) * steep / (torch.cosh(embedding) + 1.0)


class HATTask(TaskAwareTask):
    """Learns a set with masks."""

    build = MaskedNetwork

    @property
    def s(self) -> float:
        """The s of the next update, as a function of its place in an epoch."""
        count = len(self._data.training.labels) // self._images.batch_size
        last = max(1, min(count, self._budget)) - 1
        s_max = self.masked.s_max
        share = (self._updates % (last + 1)) / last if last else 1.0
        return 1.0 / s_max + (s_max - 1.0 / s_max) * share

    @property
    def masked(self) -> MaskedNetwork:
        network = self.learner.network
        assert isinstance(network, MaskedNetwork)
        return network

    def training_metrics(self, batch: Batch) -> Metrics:
        encoder, s = self.masked.encoder, self.s
        found = metrics(self.masked(batch.images, s), batch.labels)
        free = 1.0 - encoder.taken(self.place, self.masked.s_max)
        used = (encoder.masks(self.place, s) * free).sum() / free.sum().clamp(min=1e-6)
        return Metrics(found.loss + float(self.given["lambda"]) * used, found.error)

    @torch.no_grad()
    def adjust(self) -> None:
        encoder = self.masked.encoder
        before = torch.ones(3)
        for i, after in enumerate(encoder.taken(self.place, self.masked.s_max), start=1):
            convolution, norm = (
                encoder.layers.get_submodule(f"{name}{i}") for name in ("conv", "norm")
            )
            kept = 1.0 - torch.minimum(after[:, None], before[None, :])
            _scale(convolution.weight, kept[:, :, None, None])
            _scale(norm.weight, 1.0 - after)
            _scale(norm.bias, 1.0 - after)
            before = after
        embedding = encoder.embeddings[self.place]
        factor = torch.zeros_like(encoder.embeddings)
        factor[self.place] = compensation(embedding, self.s, self.masked.s_max)
        _scale(encoder.embeddings, factor)

    @torch.no_grad()
    def after_step(self) -> None:
        encoder = self.masked.encoder
        encoder.embeddings[self.place].clamp_(-LARGEST_EMBEDDING, LARGEST_EMBEDDING)
        encoder.learned[self.place] = 1.0


def _scale(parameter: Any, factor: Tensor) -> None:
    parameter.grad.mul_(factor)


@dataclass(frozen=True, kw_only=True)
class HAT(TaskAware):
    """HAT; options `sets`, `lambda` and `s_max` (not given in the Leap paper: the HAT paper's)."""

    name = "hat"
    makes = HATTask
    known = {"lambda": 0.75, "s_max": 400.0}  # noqa: RUF012 - as the base class says

    def random_initialization(self, seed: int) -> Tensor:
        network, generator = self.network(), torch.Generator().manual_seed(seed)
        initialize(network, generator)
        assert isinstance(network, MaskedNetwork)
        nn.init.normal_(network.encoder.embeddings, generator=generator)
        return flatten_parameters(network).vector[: self.shared_layout().size].clone()
