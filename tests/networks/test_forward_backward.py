"""The passes written out, against autograd on the same network."""

from __future__ import annotations

import copy
from itertools import product
from typing import Literal

import pytest
import torch
from torch import Tensor

from leap_rl.networks.actor_critic import ActorCritic, ForwardBackward
from leap_rl.networks.autograd import AutogradForwardBackward, make_forward_backward
from leap_rl.networks.custom import EncoderSpec
from leap_rl.networks.dense_conv_cpu import DenseConvCpu, space_to_depth
from leap_rl.networks.encoders import initialize
from leap_rl.networks.parameters import FlatParameters, flatten_parameters
from leap_rl.networks.sparse_conv_cpu import SparseConvCpu
from tests.networks.custom_encoders import MODULE

T, B, A = 3, 4, 5
SHAPES = [(84, 84, 3), (84, 84, 4), (85, 91, 3), (47, 38, 2)]
"""Of the games; with rows and columns that fill no block; with an odd number of bytes a line."""


def make(
    encoder: str,
    shape: tuple[int, int, int],
    dtype: torch.dtype = torch.float32,
    kind: type[DenseConvCpu | SparseConvCpu] = DenseConvCpu,
) -> tuple[FlatParameters, DenseConvCpu | SparseConvCpu, ActorCritic]:
    network = ActorCritic(encoder, observation_shape=shape, num_logits=A)
    flat = flatten_parameters(network)
    initialize(network, torch.Generator().manual_seed(0))
    return flat, kind(network, dtype=dtype), network


def unroll(shape: tuple[int, int, int]) -> tuple[Tensor, Tensor, Tensor]:
    """Observations, and gradients of some loss with respect to logits and values."""
    generator = torch.Generator().manual_seed(1)
    observations = torch.randint(0, 256, (T, B, *shape), dtype=torch.uint8, generator=generator)
    logits_grad = torch.randn(T, B, A, generator=generator)
    return observations, logits_grad, torch.randn(T, B, generator=generator)


def oracle(
    network: ActorCritic, observations: Tensor, logits_grad: Tensor, values_grad: Tensor
) -> tuple[Tensor, Tensor, dict[str, Tensor]]:
    """Logits, values and the gradients by name, by autograd in float64, all agent steps at once."""
    exact = copy.deepcopy(network).double()
    for parameter in exact.parameters():
        parameter.grad = None
    features = observations.flatten(0, 1).permute(0, 3, 1, 2).double() / 255.0
    for layer in exact.encoder:
        features = layer(features)
    logits, values = exact.policy(features), exact.value(features)[:, 0]
    torch.autograd.backward(
        [logits, values], [logits_grad.flatten(0, 1).double(), values_grad.flatten().double()]
    )
    gradients = {name: p.grad for name, p in exact.named_parameters() if p.grad is not None}
    return logits.detach().view(T, B, A), values.detach().view(T, B), gradients


def record(passes: ForwardBackward, observations: Tensor) -> tuple[Tensor, Tensor]:
    outputs = [passes.record(observation) for observation in observations]
    return torch.stack([o.logits for o in outputs]), torch.stack([o.values for o in outputs])


@pytest.mark.parametrize(
    ("encoder", "kind", "shape"),
    [
        *product(["mnih2013", "nature", "minatar"], [DenseConvCpu], SHAPES),
        *product(["minatar"], [DenseConvCpu, SparseConvCpu], [(10, 10, 3), (12, 9, 10)]),
    ],
)
def test_they_are_autograds_in_float64(
    encoder: str, kind: type[DenseConvCpu | SparseConvCpu], shape: tuple[int, int, int]
) -> None:
    check_against_oracle(*make(encoder, shape, torch.float64, kind), *unroll(shape))


def check_against_oracle(
    flat: FlatParameters,
    passes: ForwardBackward,
    network: ActorCritic,
    *batch: Tensor,
    least: float = 1e-3,
) -> None:
    """Compare outputs and gradients; `least` is what each gradient's largest value must exceed."""
    observations, *output_grads = batch
    logits, values = record(passes, observations)
    passes.backward(*output_grads)
    exact_logits, exact_values, exact = oracle(network, observations, *output_grads)
    # Parameters, outputs and gradients are float32; what lies in between is not.
    torch.testing.assert_close(logits, exact_logits.float())
    torch.testing.assert_close(values, exact_values.float())
    for name, gradient in flat.layout.named(flat.grad).items():
        scale = exact[name].abs().max().item()
        assert scale > least, name
        torch.testing.assert_close(gradient, exact[name].float(), rtol=0, atol=1e-6 * scale)


@pytest.mark.parametrize(
    ("dtype", "error"), [(torch.float32, 1e-5), (torch.bfloat16, 0.15)], ids=str
)
def test_less_precision_is_a_small_error(dtype: torch.dtype, error: float) -> None:
    flat, passes, network = make("mnih2013", (84, 84, 3), dtype)
    observations, logits_grad, values_grad = unroll((84, 84, 3))
    logits, _ = record(passes, observations)
    assert logits.dtype == torch.float32
    passes.backward(logits_grad, values_grad)
    _, _, exact = oracle(network, observations, logits_grad, values_grad)
    for name, gradient in flat.layout.named(flat.grad).items():
        difference = (gradient - exact[name]).norm() / exact[name].norm()
        assert difference < error, name
    if dtype == torch.bfloat16:
        assert (flat.grad - flat.layout.pack({n: g.float() for n, g in exact.items()})).any()


def board(*leading: int) -> Tensor:
    """Mostly empty, as MinAtar's; some cells as the one before, some with empty channels."""
    generator = torch.Generator().manual_seed(3)
    cells = torch.randint(0, 256, (*leading, 10, 10, 3), dtype=torch.uint8, generator=generator)
    cells[..., 0][torch.rand(cells.shape[:-1], generator=generator) < 0.5] = 0
    cells[torch.rand(cells.shape[:-1], generator=generator) < 0.7] = 0
    cells[..., 2, :, :] = cells[..., 2, :1, :]
    return cells


def test_empty_cells_are_skipped_and_like_ones_computed_once() -> None:
    _, *output_grads = unroll((10, 10, 3))
    observations = board(T, B)
    assert 0.5 < (observations == 0).all(-1).double().mean() < 0.8
    made = make("minatar", (10, 10, 3), torch.float64, SparseConvCpu)
    check_against_oracle(*made, observations, *output_grads, least=0.0)


def test_a_small_network_does_not_hide_what_is_not_a_number() -> None:
    flat, passes, _ = make("minatar", (10, 10, 3), kind=SparseConvCpu)
    flat.layout.named(flat.vector)["encoder.conv1.bias"][3] = torch.nan
    passes.refresh()
    assert passes.forward(board(B)).logits.isnan().all()


@pytest.mark.parametrize("kind", ["direct", "small", "autograd"])
def test_an_unroll_can_be_differentiated_twice_and_is_then_forgotten(kind: str) -> None:
    small = kind == "small"
    shape = (10, 10, 3) if small else (84, 84, 3)
    flat, passes, network = make(
        "minatar" if small else "mnih2013", shape, kind=SparseConvCpu if small else DenseConvCpu
    )
    tested: ForwardBackward = (
        AutogradForwardBackward(network, flat) if kind == "autograd" else passes
    )
    observations, logits_grad, values_grad = unroll(shape)
    record(tested, observations)
    for view in flat.layout.named(flat.grad).values():
        view.fill_(1e3)  # is overwritten, not added to
    tested.backward(torch.zeros_like(logits_grad), values_grad, forget=False)
    first = flat.grad.clone()
    tested.backward(logits_grad, torch.zeros_like(values_grad))
    second = flat.grad.clone()
    assert first.any()
    assert second.any()
    record(tested, observations)
    tested.backward(logits_grad, values_grad)
    torch.testing.assert_close(flat.grad, first + second, rtol=1e-4, atol=1e-4)
    again = flat.grad.clone()
    record(tested, observations)
    tested.backward(logits_grad, values_grad)
    assert torch.equal(flat.grad, again)


def test_forward_is_record_without_keeping() -> None:
    _, passes, _ = make("nature", (84, 84, 3))
    observations, logits_grad, values_grad = unroll((84, 84, 3))
    kept = passes.record(observations[0])
    for a, b in zip(passes.forward(observations[0]), kept, strict=True):
        assert torch.equal(a, b)
    passes.backward(logits_grad[:1], values_grad[:1])  # of one agent step, not of two


def test_changed_parameters_are_taken_over() -> None:
    flat, passes, network = make("mnih2013", (84, 84, 3))
    observation = unroll((84, 84, 3))[0][0]
    before = passes.forward(observation).logits
    flat.spare.copy_(flat.vector * 1.1)
    flat.swap()
    passes.refresh()
    after = passes.forward(observation).logits
    assert not torch.allclose(before, after, atol=1e-3)
    with torch.no_grad():
        torch.testing.assert_close(after, network(observation)[0], rtol=1e-4, atol=1e-5)


def test_blocks_hold_the_pixels_they_cover() -> None:
    pixels = torch.arange(2 * 9 * 10 * 3).remainder(251).to(torch.uint8).view(2, 9, 10, 3)
    for stride in (1, 2, 4):
        blocks = space_to_depth(pixels, stride)
        assert blocks.shape == (2, 9 // stride, 10 // stride, stride * stride * 3)
        for row, column in ((0, 0), (1, 1), (9 // stride - 1, 10 // stride - 1)):
            covered = pixels[
                :,
                row * stride : (row + 1) * stride,
                column * stride : (column + 1) * stride,
            ]
            assert torch.equal(blocks[:, row, column], covered.flatten(1))


@pytest.mark.parametrize(
    ("encoder", "shape", "precision", "kind"),
    [
        ("mnih2013", (84, 84, 4), "float32", DenseConvCpu),
        ("nature", (84, 84, 4), "bfloat16", DenseConvCpu),
        ("minatar", (10, 10, 3), "float32", SparseConvCpu),
        ("minatar", (10, 10, 3), "bfloat16", DenseConvCpu),
        ("minatar", (84, 84, 3), "float32", DenseConvCpu),
        ("impala", (84, 84, 3), "float32", AutogradForwardBackward),
        ("mlp", (10,), "float32", AutogradForwardBackward),
        (EncoderSpec(name=f"{MODULE}:Plain"), (10, 10, 3), "float32", AutogradForwardBackward),
    ],
)
def test_each_network_has_the_fastest_passes(
    encoder: str | EncoderSpec,
    shape: tuple[int, ...],
    precision: Literal["float32", "bfloat16"],
    kind: type,
) -> None:
    network = ActorCritic(encoder, observation_shape=shape, num_logits=A)
    passes = make_forward_backward(network, flatten_parameters(network), precision=precision)
    assert type(passes) is kind


def test_autograd_casts_too() -> None:
    network = ActorCritic("impala", observation_shape=(84, 84, 3), num_logits=A)
    flat = flatten_parameters(network)
    initialize(network, torch.Generator().manual_seed(0))
    observations, logits_grad, values_grad = unroll((84, 84, 3))
    gradients = []
    for precision in ("float32", "bfloat16"):
        passes = make_forward_backward(network, flat, precision=precision)
        logits, _ = record(passes, observations[:1, :2])
        assert logits.dtype == torch.float32
        passes.backward(logits_grad[:1, :2], values_grad[:1, :2])
        gradients.append(flat.grad.clone())
    exact, cast = gradients
    assert 1e-4 < (exact - cast).norm() / exact.norm() < 0.1
