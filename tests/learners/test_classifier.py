from __future__ import annotations

from collections import OrderedDict

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from leap_rl.core.processor import Precision
from leap_rl.learners.classifier.classifier import Batch, ClassifierLearner, Share, metrics
from leap_rl.networks.classifier import make_classifier
from leap_rl.networks.encoders import initialize

LR = 0.1


def generator(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def make_learner(
    share: Share = "all_but_last", precision: Precision = "float32"
) -> ClassifierLearner:
    learner = ClassifierLearner(
        classes=20, share=share, lr=LR, head_generator=generator(0), precision=precision
    )
    network = make_classifier(20)
    initialize(network.encoder, generator(1))
    for name, parameter in network.encoder.named_parameters():
        learner.network.encoder.get_parameter(name).data.copy_(parameter)
    return learner


def batch(seed: int, size: int = 8) -> Batch:
    return Batch(
        torch.rand(size, 1, 28, 28, generator=generator(seed)),
        torch.randint(20, (size,), generator=generator(seed + 100)),
    )


def plain_network() -> nn.Sequential:
    """The paper's network, put together again: a bias before a normalization has no effect."""
    layers: list[nn.Module] = []
    for inputs in (1, 64, 64, 64):
        layers += [nn.Conv2d(inputs, 64, 3, padding=1), nn.BatchNorm2d(64), nn.ReLU()]
        layers += [nn.MaxPool2d(2)]
    return nn.Sequential(*layers, nn.Flatten(), nn.Linear(64, 20)).train()


def test_the_network_is_the_papers() -> None:
    learner, plain = make_learner(), plain_network()
    ours = dict(learner.network.named_parameters())
    for i, layer in enumerate(layer for layer in plain if isinstance(layer, nn.Conv2d)):
        layer.weight.data.copy_(ours[f"encoder.conv{i + 1}.weight"])
    last = plain[-1]
    assert isinstance(last, nn.Linear)
    last.weight.data.copy_(ours["head.weight"])
    assert last.bias is not None
    last.bias.data.copy_(ours["head.bias"])
    images, labels = batch(3)
    torch.testing.assert_close(learner.network(images), plain(images), atol=1e-5, rtol=1e-4)
    expected = F.cross_entropy(plain(images), labels)
    torch.testing.assert_close(
        learner.metrics(Batch(images, labels)).loss, expected, atol=1e-5, rtol=1e-4
    )


def test_pooling_before_the_relu_changes_no_bit() -> None:
    ours, papers = make_learner(), make_learner()
    layers = dict(papers.network.encoder.named_children())
    order = [f"{kind}{i}" for i in range(1, 5) for kind in ("conv", "norm", "relu", "pool")]
    papers.network.encoder = nn.Sequential(
        OrderedDict((name, layers[name]) for name in [*order, "flatten"])
    )
    for update in range(5):
        for learner in (ours, papers):
            learner.backward(learner.metrics(batch(update)).loss)
            learner.step()
    assert torch.equal(ours.parameters, papers.parameters)
    assert next(iter(layers)) == "conv1"
    assert list(layers) != [*order, "flatten"]


def test_bfloat16_learns_nearly_the_same_with_float32_parameters() -> None:
    exact, rounded = make_learner(), make_learner(precision="bfloat16")
    gradients = []
    for learner in (exact, rounded):
        loss = learner.metrics(batch(0)).loss
        assert loss.dtype == torch.float32
        gradients.append(learner.backward(loss).clone())
        learner.step()
        assert learner.parameters.dtype == torch.float32
    assert not torch.equal(*gradients)
    assert (
        F.cosine_similarity(*gradients, dim=0) > 0.9
    )  # of noise, in whose maxima any rounding shows
    # The same loss as a function of its parameters, as MAML differentiates it.
    at = rounded.loss_at(rounded.parameters, batch(1))
    torch.testing.assert_close(at, rounded.metrics(batch(1)).loss, atol=1e-2, rtol=1e-2)
    assert not torch.equal(at, exact.loss_at(rounded.parameters, batch(1)))


def test_it_validates_on_the_batchs_own_statistics() -> None:
    """An image's logits depend on its companions, in validation as in training."""
    learner = make_learner()
    images, labels = batch(0)
    alone = learner.evaluate(Batch(images[:4], labels[:4])).loss
    with_others = F.cross_entropy(learner.network(images)[:4], labels[:4])
    assert abs(float(alone) - float(with_others.detach())) > 1e-4
    assert not list(learner.network.buffers())


def test_updates_are_those_of_torchs_sgd() -> None:
    learner, twin = make_learner(), make_learner()
    optimizer = torch.optim.SGD(twin.network.parameters(), lr=LR, foreach=False)
    for update in range(3):
        learner.backward(learner.metrics(batch(update)).loss)
        learner.step()
        for parameter in twin.network.parameters():
            assert parameter.grad is not None
            parameter.grad.zero_()
        twin.metrics(batch(update)).loss.backward()
        optimizer.step()
    torch.testing.assert_close(learner.parameters, twin.parameters, rtol=1e-6, atol=1e-7)
    assert not torch.equal(learner.parameters, make_learner().parameters)


def test_the_last_point_and_its_gradient_stay_until_the_next_update_is_done() -> None:
    learner = make_learner()
    gradient = learner.backward(learner.metrics(batch(0)).loss)
    point = learner.shared
    kept = gradient.clone(), point.clone()
    learner.step()
    learner.backward(learner.metrics(batch(1)).loss)
    assert torch.equal(gradient, kept[0])
    assert torch.equal(point, kept[1])
    assert not torch.equal(learner.shared, point)


def test_what_is_shared_comes_first() -> None:
    encoder, whole = make_learner("all_but_last"), make_learner("all")
    head = 64 * 20 + 20
    assert encoder.shared_size < whole.shared_size == whole.flat.layout.size
    padding = whole.shared_size - encoder.shared_size - head
    assert 0 <= padding < 16
    names = [leaf.name for leaf in encoder.flat.layout.leaves]
    assert [name for name in names if name.startswith("head")] == names[-2:]


def test_the_error_is_the_share_of_wrong_drawings() -> None:
    logits = torch.tensor([[2.0, 1.0], [0.0, 1.0], [3.0, 0.0], [0.0, 9.0]])
    labels = torch.tensor([0, 0, 1, 1])
    assert float(metrics(logits, labels).error) == 0.5
    assert float(metrics(logits, labels).loss) == float(F.cross_entropy(logits, labels))


def test_the_loss_as_a_function_of_a_vector_is_the_networks() -> None:
    learner = make_learner()
    other = torch.randn(learner.parameters.shape, generator=generator(9)) * 0.1
    there = learner.loss_at(other, batch(2))
    learner.load_parameters(other)
    assert float(there) == float(learner.evaluate(batch(2)).loss)


def test_parameters_of_another_network_are_refused() -> None:
    with pytest.raises(ValueError, match="another network"):
        make_learner().load_parameters(torch.zeros(32))
