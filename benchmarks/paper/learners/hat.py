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

from benchmarks.paper.learners.task_aware import TaskAware, TaskAwareNetwork
from leap_rl.learners.classifier.classifier import (
    FILTERS,
    MODULES,
    Batch,
    Classifier,
    Metrics,
    metrics,
)
from leap_rl.learners.classifier.sets import ImageSetTask

S_MAX, REGULARIZATION = 400.0, 0.75
"""s_max and λ, not given in the Leap paper: the HAT paper's."""

LARGEST_EXPONENT, LARGEST_EMBEDDING = 50.0, 6.0
"""|s e| is clamped in the compensation, and |e| after each step, as in HAT's published code."""


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
    def taken(self, place: int) -> Tensor:
        """Return A, the largest mask of the other sets that were learned, [layers, F]."""
        others = [one for one in range(len(self.learned)) if one != place and self.learned[one] > 0]
        none = torch.zeros(MODULES, FILTERS)
        return torch.stack([none, *(self.masks(one, S_MAX) for one in others)]).amax(0)

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

    def forward(self, images: Tensor, s: float = S_MAX) -> Tensor:
        logits: Tensor = self.head(self.encoder(images, self.encoder.masks(self.place, s)))
        return logits


def compensation(embedding: Tensor, s: float) -> Tensor:
    """Return what an embedding's gradient is multiplied by, so that a steep σ does not stop it."""
    steep = torch.cosh((s * embedding).clamp(-LARGEST_EXPONENT, LARGEST_EXPONENT)) + 1.0
    return (S_MAX / s) * steep / (torch.cosh(embedding) + 1.0)


class HATTask(ImageSetTask):
    """Learns a set with masks."""

    @property
    def network(self) -> MaskedNetwork:
        network = self.learner.network
        assert isinstance(network, MaskedNetwork)
        return network

    @property
    def s(self) -> float:
        """The s of the next update, by its place in an epoch, or in the budget if that is less."""
        epoch = len(self.data.training.labels) // self.images.batch_size
        last = min(max(1, epoch), self._budget) - 1
        share = (self._updates % (last + 1)) / last if last else 1.0
        return 1.0 / S_MAX + (S_MAX - 1.0 / S_MAX) * share

    def training_metrics(self, batch: Batch) -> Metrics:
        encoder, place = self.network.encoder, self.network.place
        found = metrics(self.network(batch.images, self.s), batch.labels)
        free = 1.0 - encoder.taken(place)
        used = (encoder.masks(place, self.s) * free).sum() / free.sum().clamp(min=1e-6)
        return Metrics(found.loss + REGULARIZATION * used, found.error)

    def backward(self, loss: Tensor) -> Tensor:
        gradient = super().backward(loss)
        encoder, place = self.network.encoder, self.network.place
        before = torch.ones(3)
        for i, after in enumerate(encoder.taken(place), start=1):
            kept = 1.0 - torch.minimum(after[:, None], before)
            _scale(encoder.layers.get_submodule(f"conv{i}").weight, kept[:, :, None, None])
            for parameter in encoder.layers.get_submodule(f"norm{i}").parameters():
                _scale(parameter, 1.0 - after)
            before = after
        factor = torch.zeros_like(encoder.embeddings)
        factor[place] = compensation(encoder.embeddings[place].detach(), self.s)
        _scale(encoder.embeddings, factor)
        return gradient

    @torch.no_grad()
    def step(self) -> None:
        super().step()
        encoder, place = self.network.encoder, self.network.place
        encoder.embeddings[place].clamp_(-LARGEST_EMBEDDING, LARGEST_EMBEDDING)
        encoder.learned[place] = 1.0


def _scale(parameter: Tensor | nn.Module, factor: Tensor) -> None:
    assert isinstance(parameter, Tensor)
    assert parameter.grad is not None
    parameter.grad.mul_(factor)


@dataclass(frozen=True, kw_only=True)
class HAT(TaskAware):
    """HAT as a learner."""

    name = "hat"
    makes = HATTask

    def build(self, place: int, classes: int) -> MaskedNetwork:
        return MaskedNetwork(MaskedEncoder(len(self.sets)), place, classes)

    def draw(self, name: str, parameter: nn.Parameter, generator: torch.Generator) -> None:
        if name == "embeddings":
            nn.init.normal_(parameter, generator=generator)
