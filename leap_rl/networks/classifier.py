"""The network of few-shot classification: four convolutions and a linear layer.

"This model stacks a module, comprised of a 3 × 3 convolution with 64 filters, followed by
batch-normalization, ReLU activation and 2 × 2 max-pooling, four times" (Leap's appendix "Experiment
details: Omniglot", after Vinyals et al. 2016).

N: images.
"""

from __future__ import annotations

from collections import OrderedDict

from torch import Tensor, nn

from leap_rl.networks.encoders import blank

FILTERS = 64
MODULES = 4


class Classifier(nn.Module):
    """Says which of some classes an image is of: an `encoder`, and a last layer, the `head`.

    Its parameters are zero until `encoders.initialize` draws them or a vector is copied in. The
    encoder's come first.
    """

    def __init__(self, classes: int) -> None:
        super().__init__()
        layers: OrderedDict[str, nn.Module] = OrderedDict()
        for i in range(1, MODULES + 1):
            inputs = 1 if i == 1 else FILTERS
            # No bias: the normalization would take it away.
            layers[f"conv{i}"] = nn.Conv2d(inputs, FILTERS, 3, padding=1, bias=False)
            # On the batch's own statistics, in validation too: the paper's tasks are too short for
            # running means, and a path through parameters is not to depend on anything else.
            layers[f"norm{i}"] = nn.BatchNorm2d(FILTERS, track_running_stats=False)
            # The paper's order, ReLU then pooling, to the bit, as a maximum is kept by what only
            # grows: the same numbers and gradients from a quarter of the elements.
            layers[f"pool{i}"] = nn.MaxPool2d(2)
            layers[f"relu{i}"] = nn.ReLU()
        layers["flatten"] = nn.Flatten()
        self.encoder = nn.Sequential(layers)
        self.head = nn.Linear(FILTERS, classes)

    def forward(self, images: Tensor) -> Tensor:
        """Return the logits [N, classes] of images, float32 [N, 1, 28, 28]."""
        height, width = images.shape[2:]
        # The same memory as "channels last", which the layers keep: a third less time on a CPU.
        strides = (height * width, 1, width, 1)
        images = images.contiguous().as_strided(images.shape, strides)
        logits: Tensor = self.head(self.encoder(images))
        return logits


def make_classifier(classes: int) -> Classifier:
    """Return the network, its parameters zero; draws no random number."""
    return blank(lambda: Classifier(classes))
