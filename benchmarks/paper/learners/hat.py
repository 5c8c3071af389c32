"""Hard attention to the task (HAT; Serrà et al., ICML 2018), with the Leap paper's revisits.

    hᵢ = aᵢ ⊙ relu(pool(norm(Wᵢ hᵢ₋₁))),    aᵢ = σ(s eᵢ)    a mask a layer and set

While a set is learned, s rises from 1/s_max to s_max over an epoch. A weight's gradient is scaled
by 1 − min(Aᵢ, Aᵢ₋₁), with A the largest mask of the other sets that were learned: on a revisit the
set's own is no part of it. No set's mask is trained but its own, and the loss gains
λ Σ a (1 − A) / Σ (1 − A), so that it takes few units that no other set has.

i: layers. F: filters of a layer. T: sets.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from benchmarks.paper.learners.task_aware import TaskAware
from leap_rl.learners.classifier.classifier import (
    FILTERS,
    LAYERS,
    MODULES,
    Batch,
    Classifier,
    Metrics,
    Network,
)
from leap_rl.learners.classifier.sets import ImageSetTask

S_MAX, REGULARIZATION = 400.0, 0.75
"""s_max and λ, not given in the Leap paper: the HAT paper's."""

LARGEST_EXPONENT, LARGEST_EMBEDDING = 50.0, 6.0
"""|s e| is clamped in the compensation, and |e| after each step, as in HAT's published code."""


class MaskedEncoder(nn.Module):
    """The paper's encoder with all sets' embeddings, for the set at a place among them."""

    def __init__(self, sets: int, place: int) -> None:
        super().__init__()
        self.place = place
        self.embeddings = nn.Parameter(torch.empty(sets, MODULES, FILTERS))
        self.learned = nn.Parameter(torch.empty(sets))
        """1 for sets that were learned, 0 for others; no gradient reaches it."""
        self.layers = Classifier(1, channels=3).encoder

    def masks(self, s: float) -> Tensor:
        """Return the set's masks a, [layers, F]."""
        return torch.sigmoid(s * self.embeddings[self.place])

    @torch.no_grad()
    def taken(self) -> Tensor:
        """Return A, the largest mask of the other sets that were learned, [layers, F]."""
        others = self.learned > 0
        others[self.place] = False
        none = torch.zeros(1, MODULES, FILTERS)
        return torch.cat([none, torch.sigmoid(S_MAX * self.embeddings[others])]).amax(0)

    def forward(self, images: Tensor, s: float = S_MAX) -> Tensor:
        hidden = images.contiguous(memory_format=torch.channels_last)
        for i, mask in enumerate(self.masks(s)):
            hidden = self.layers[LAYERS * i : LAYERS * (i + 1)](hidden) * mask[:, None, None]
        return hidden.flatten(1)


def compensation(embedding: Tensor, s: float) -> Tensor:
    """Return what an embedding's gradient is multiplied by, so that a steep σ does not stop it."""
    steep = torch.cosh((s * embedding).clamp(-LARGEST_EXPONENT, LARGEST_EXPONENT)) + 1.0
    return (S_MAX / s) * steep / (torch.cosh(embedding) + 1.0)


class HATTask(ImageSetTask):
    """Learns a set with masks."""

    @property
    def encoder(self) -> MaskedEncoder:
        encoder = self.learner.network.encoder
        assert isinstance(encoder, MaskedEncoder)
        return encoder

    @property
    def s(self) -> float:
        """The s of the next update, by its place in an epoch, or in the budget if that is less."""
        each = self.images.batch_size
        epoch = min(len(self.data.training.labels), self._budget * each)
        share = min(1.0, self._updates * each % epoch / (epoch - each)) if epoch > each else 1.0
        return 1.0 / S_MAX + (S_MAX - 1.0 / S_MAX) * share

    def training_metrics(self, batch: Batch) -> Metrics:
        found = self.learner.metrics(batch, self.s)
        free = 1.0 - self.encoder.taken()
        used = (self.encoder.masks(self.s) * free).sum() / free.sum().clamp(min=1e-6)
        # The error is that of the network that is tested: masks are all but soft where s is small.
        error = self.learner.evaluate(batch).error
        return Metrics(found.loss + REGULARIZATION * used, error)

    def backward(self, loss: Tensor) -> Tensor:
        gradient, encoder, flat = super().backward(loss), self.encoder, self.learner.flat
        gradients = flat.layout.named(flat.grad)
        before = torch.ones(3)
        for i, after in enumerate(encoder.taken(), start=1):
            kept = 1.0 - torch.minimum(after[:, None], before)
            gradients[f"encoder.layers.conv{i}.weight"] *= kept[:, :, None, None]
            gradients[f"encoder.layers.norm{i}.weight"] *= 1.0 - after
            gradients[f"encoder.layers.norm{i}.bias"] *= 1.0 - after
            before = after
        own = encoder.embeddings[encoder.place].detach()
        gradients["encoder.embeddings"][encoder.place] *= compensation(own, self.s)
        return gradient

    @torch.no_grad()
    def step(self) -> None:
        super().step()
        encoder = self.encoder
        encoder.embeddings[encoder.place].clamp_(-LARGEST_EMBEDDING, LARGEST_EMBEDDING)
        encoder.learned[encoder.place] = 1.0


@dataclass(frozen=True, kw_only=True)
class HAT(TaskAware):
    """HAT as a learner."""

    name = "hat"
    makes = HATTask

    def encoder(self, place: int) -> MaskedEncoder:
        return MaskedEncoder(len(self.sets), place)

    def draw(self, network: Network, generator: torch.Generator) -> None:
        super().draw(network, generator)
        nn.init.normal_(network.get_parameter("encoder.embeddings"), generator=generator)
