"""Progressive Nets (Rusu et al. 2016) with "lateral connections between all tasks" and revisits.

A column a set, of the paper's encoder; from the second layer on each column also sees all others:

    hᵢ = relu(pool(norm(Wᵢ hᵢ₋₁ + Uᵢ relu(Vᵢ [α h of the others at i − 1]))))

Only the column of the set that is learned has gradients, its U, V and α among them; the others are
constants to it. V is a 1 × 1 convolution to WIDTH filters, U one back to 64, α a number for each
other column. The Leap paper gives neither; a width of 8 makes eight columns 8.9 times one network,
which "over 8 times larger" allows.

T: sets, a column each. F: filters of a layer.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from benchmarks.paper.learners.task_aware import TaskAware
from leap_rl.learners.classifier.classifier import FILTERS, LAYERS, MODULES, Classifier, Network

WIDTH = 8

SMALL = 0.1
"""α starts between 0 and this: "different small random values" (Rusu et al. 2016, section 2)."""


class Column(nn.Module):
    """A set's own network, with adapters from all others."""

    def __init__(self, others: int) -> None:
        super().__init__()
        self.layers = Classifier(1, channels=3).encoder
        lateral = MODULES - 1
        self.scales = nn.Parameter(torch.empty(lateral, others))
        self.down, self.up = (
            nn.ModuleList(nn.Conv2d(inputs, outputs, 1, bias=False) for _ in range(lateral))
            for inputs, outputs in ((others * FILTERS, WIDTH), (WIDTH, FILTERS))
        )

    def layer(self, i: int, own: Tensor, others: list[Tensor]) -> Tensor:
        """Return a layer's features, i from 0, of the column's own and the others' before it."""
        convolution, *following = list(self.layers)[LAYERS * i : LAYERS * (i + 1)]
        hidden: Tensor = convolution(own)
        if i > 0 and others:
            scaled = [a * h for a, h in zip(self.scales[i - 1], others, strict=True)]
            hidden = hidden + self.up[i - 1](F.relu(self.down[i - 1](torch.cat(scaled, dim=1))))
        for layer in following:
            hidden = layer(hidden)
        return hidden


class Columns(nn.Module):
    """The columns of all sets, for the set at a place among them."""

    def __init__(self, sets: int, place: int) -> None:
        super().__init__()
        self.place = place
        self.columns = nn.ModuleList(Column(sets - 1) for _ in range(sets))

    def forward(self, images: Tensor) -> Tensor:
        """Return the features of the set's column; only that one is differentiated."""
        learns = torch.is_grad_enabled()
        hidden = [images.contiguous(memory_format=torch.channels_last)] * len(self.columns)
        for i in range(MODULES):
            before, hidden = hidden, []
            for number, column in enumerate(self.columns):
                assert isinstance(column, Column)
                others = before[:number] + before[number + 1 :]
                with torch.set_grad_enabled(learns and number == self.place):
                    hidden.append(column.layer(i, before[number], others))
        return hidden[self.place].flatten(1)


@dataclass(frozen=True, kw_only=True)
class ProgressiveNets(TaskAware):
    """Progressive Nets as a learner."""

    name = "progressive"

    def encoder(self, place: int) -> Columns:
        return Columns(len(self.sets), place)

    def draw(self, network: Network, generator: torch.Generator) -> None:
        super().draw(network, generator)
        for name, parameter in network.named_parameters():
            if name.endswith(".scales"):
                nn.init.uniform_(parameter, 0.0, SMALL, generator=generator)
