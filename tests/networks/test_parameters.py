from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from leap_rl.networks.parameters import FlatParameters, Layout, Leaf, flatten_parameters, layout_of


class Net(nn.Module):
    """Sizes chosen so that there is padding within the encoder and the head."""

    def __init__(self) -> None:
        super().__init__()
        self.encoder = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 5))
        self.head = nn.Linear(5, 3)

    def forward(self, inputs: Tensor) -> Tensor:
        outputs: Tensor = self.head(self.encoder(inputs))
        return outputs


# Floats:  encoder.0 32 + 8, encoder.2 40 + 5, head 15 + 3; each start rounded up to 16.
LEAVES = (
    Leaf("encoder.0.weight", (8, 4), 0),
    Leaf("encoder.0.bias", (8,), 32),
    Leaf("encoder.2.weight", (5, 8), 48),
    Leaf("encoder.2.bias", (5,), 96),
    Leaf("head.weight", (3, 5), 112),
    Leaf("head.bias", (3,), 128),
)
PADDING = [*range(40, 48), *range(88, 96), *range(101, 112), 127, *range(131, 144)]


@pytest.fixture
def net() -> Net:
    torch.manual_seed(0)
    return Net()


def backward(net: Net, seed: int) -> None:
    inputs = torch.randn(6, 4, generator=torch.Generator().manual_seed(seed))
    net(inputs).square().sum().backward()


def leaf_grads(seed: int) -> dict[str, Tensor]:
    """What torch alone computes, on the same network left as it is."""
    torch.manual_seed(0)
    net = Net()
    backward(net, seed)
    return {name: p.grad for name, p in net.named_parameters() if p.grad is not None}


def storage(flat: FlatParameters, net: Net) -> list[int]:
    grads = [p.grad for p in net.parameters()]
    assert all(grad is not None for grad in grads)
    return [p.data_ptr() for p in net.parameters()] + [g.data_ptr() for g in grads if g is not None]


def test_layout_by_hand(net: Net) -> None:
    layout = layout_of(net)
    assert layout.leaves == LEAVES
    assert layout.size == 144


def test_views_start_on_64_byte_boundaries(net: Net) -> None:
    flat = flatten_parameters(net)
    assert all(address % 64 == 0 for address in storage(flat, net))


def test_backward_adds_into_the_flat_gradient_in_place(net: Net) -> None:
    flat = flatten_parameters(net)
    addresses = storage(flat, net)
    for seeds in ([1], [2, 3]):
        flat.zero_grad()
        for seed in seeds:
            backward(net, seed)
        assert storage(flat, net) == addresses
        grads = flat.layout.named(flat.grad)
        for name, grad in grads.items():
            expected = sum(leaf_grads(seed)[name] for seed in seeds)
            assert torch.allclose(grad, torch.as_tensor(expected), rtol=1e-5, atol=1e-5), name
    flat.zero_grad()
    assert storage(flat, net) == addresses
    assert not flat.grad.any()


def test_swapping_leaves_the_last_point_and_its_gradient_readable(net: Net) -> None:
    flat = flatten_parameters(net)
    backward(net, 1)
    point, gradient = flat.vector.clone(), flat.grad.clone()
    flat.spare.copy_(2 * flat.vector)
    flat.swap()
    assert torch.equal(flat.spare, point)
    assert torch.equal(flat.spare_grad, gradient)
    assert torch.equal(net.head.weight, 2 * flat.layout.named(point)["head.weight"])
    flat.zero_grad()
    backward(net, 2)
    assert torch.equal(flat.spare_grad, gradient), "the next gradient goes elsewhere"
    assert flat.grad.any()
    assert not torch.equal(flat.grad, gradient)
    flat.swap()
    assert torch.equal(net.head.weight, flat.layout.named(point)["head.weight"])


@pytest.mark.parametrize("optimizer", [torch.optim.RMSprop, torch.optim.Adam, torch.optim.SGD])
def test_padding_stays_zero(net: Net, optimizer: type[torch.optim.Optimizer]) -> None:
    flat = flatten_parameters(net)
    leaf = nn.Parameter(flat.vector)
    leaf.grad = flat.grad
    before = flat.vector.clone()
    step = optimizer([leaf], lr=0.1)  # type: ignore[call-arg]
    for seed in range(3):
        flat.zero_grad()
        backward(net, seed)
        step.step()
    assert not flat.vector[PADDING].any()
    assert not flat.grad[PADDING].any()
    assert (flat.vector != before).sum() > 50


def test_what_comes_before_a_child_is_the_beginning_of_the_vector(net: Net) -> None:
    layout, flat = layout_of(net), flatten_parameters(net)
    first = layout.before("encoder.2")
    assert first == Layout(LEAVES[:2], 48)
    assert torch.equal(
        first.named(flat.vector[: first.size])["encoder.0.bias"], net.encoder[0].bias
    )
    assert layout.before("head") == Layout(LEAVES[:4], 112)
    assert torch.equal(flatten_parameters(net.encoder).vector, flat.vector[:112])
    for child in ("encoder", "decoder"):
        with pytest.raises(AssertionError):
            layout.before(child)


def test_pack_is_the_inverse_of_named(net: Net) -> None:
    flat = flatten_parameters(net)
    layout = flat.layout
    packed = layout.pack(layout.named(flat.vector))
    assert torch.equal(packed, flat.vector)
    packed.zero_()
    assert flat.vector.any(), "pack must copy"


def test_pack_refuses_by_name(net: Net) -> None:
    flat = flatten_parameters(net)
    named = flat.layout.named(flat.vector)

    short = {name: value for name, value in named.items() if name != "encoder.2.bias"}
    with pytest.raises(ValueError, match=r"missing \['encoder.2.bias'\], unexpected \[\]"):
        flat.layout.pack(short)
    with pytest.raises(ValueError, match=r"missing \[\], unexpected \['encoder.3.bias'\]"):
        flat.layout.pack({**named, "encoder.3.bias": torch.zeros(5)})
    # The same number of elements, so that only the shape tells them apart.
    with pytest.raises(ValueError, match=r"head.weight: has shape \(5, 3\).* is \(3, 5\)"):
        flat.layout.pack({**named, "head.weight": torch.zeros(5, 3)})
    with pytest.raises(ValueError, match=r"head.bias: is torch.float64"):
        flat.layout.pack({**named, "head.bias": torch.zeros(3, dtype=torch.float64)})


def test_a_module_in_another_precision_is_refused() -> None:
    with pytest.raises(AssertionError, match="float64"):
        flatten_parameters(nn.Linear(2, 2).double())
