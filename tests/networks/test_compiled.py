"""The compiled passes, in float32, against autograd in float64 on the same network."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import Tensor

from leap_rl.learners.config import AgentConfig
from leap_rl.learners.hardware import resolve
from leap_rl.networks.actor_critic import ActorCritic, ForwardBackward
from leap_rl.networks.autograd import make_forward_backward
from leap_rl.networks.encoders import initialize
from leap_rl.networks.parameters import FlatParameters, flatten_parameters
from tests.networks.test_forward_backward import board

T, B, L = 3, 6, 5


def make(
    encoder: str, shape: tuple[int, ...]
) -> tuple[FlatParameters, ForwardBackward, ActorCritic]:
    network = ActorCritic(encoder, observation_shape=shape, num_logits=L)
    flat = flatten_parameters(network)
    initialize(network, torch.Generator().manual_seed(0))
    return flat, make_forward_backward(network, flat, precision="float32_compiled"), network


def bytes_of(*shape: int) -> Tensor:
    generator = torch.Generator().manual_seed(1)
    return torch.randint(0, 256, (T, B, *shape), dtype=torch.uint8, generator=generator)


def numbers_of(length: int) -> Tensor:
    return 3.0 * torch.randn(T, B, length, generator=torch.Generator().manual_seed(1))


def exact(
    network: ActorCritic, observations: Tensor, *output_grads: Tensor
) -> tuple[Tensor, Tensor, dict[str, Tensor]]:
    """Logits, values and the gradients by name, by autograd in float64, all agent steps at once."""
    twin = copy.deepcopy(network).double()
    for parameter in twin.parameters():
        parameter.grad = None
    features = observations.flatten(0, 1).double()
    if observations.dtype == torch.uint8:
        features = features / 255.0
    if features.ndim == 4:
        features = features.permute(0, 3, 1, 2)
    for layer in twin.encoder.children():
        features = layer(features)
    outputs = [twin.policy(features), twin.value(features)[:, 0]]
    torch.autograd.backward(outputs, [grad.flatten(0, 1).double() for grad in output_grads])
    logits, values = (output.detach().unflatten(0, (T, B)) for output in outputs)
    gradients = {name: p.grad for name, p in twin.named_parameters() if p.grad is not None}
    return logits, values, gradients


CASES = {
    "cells of channels": ("minatar", bytes_of(10, 10, 7) // 255 * 255),
    "mostly empty": ("minatar", board(T, B)),
    "full, not square, an odd number of bytes": ("minatar", bytes_of(12, 9, 5)),
    "empty": ("minatar", torch.zeros(T, B, 10, 10, 3, dtype=torch.uint8)),
    "numbers": ("mlp", numbers_of(4)),
    "longer than a word": ("mlp", numbers_of(27)),
    "bytes": ("mlp", bytes_of(9)),
}


@pytest.mark.parametrize("case", CASES)
def test_they_are_autograds_to_rounding(case: str) -> None:
    encoder, observations = CASES[case]
    flat, passes, network = make(encoder, tuple(observations.shape[2:]))
    generator = torch.Generator().manual_seed(2)
    output_grads = [torch.randn(T, B, *rest, generator=generator) for rest in ((L,), ())]
    flat.grad.fill_(7.0)  # it is overwritten
    outputs = [passes.record(each) for each in observations]
    passes.forward(observations[0])  # of bootstrapping: no part of the unroll
    passes.backward(*output_grads)
    logits, values, gradients = exact(network, observations, *output_grads)
    torch.testing.assert_close(torch.stack([o.logits for o in outputs]), logits.float())
    torch.testing.assert_close(torch.stack([o.values for o in outputs]), values.float())
    for name, gradient in flat.layout.named(flat.grad).items():
        scale = max(gradients[name].abs().max().item(), 1e-3)
        torch.testing.assert_close(
            gradient,
            gradients[name].float(),
            rtol=0,
            atol=3e-6 * scale,
            msg=name,
        )


@pytest.mark.parametrize(("encoder", "shape"), [("minatar", (10, 10, 3)), ("mlp", (4,))])
def test_an_unroll_can_be_differentiated_twice_and_is_then_forgotten(
    encoder: str, shape: tuple[int, ...]
) -> None:
    flat, passes, _ = make(encoder, shape)
    observations = board(2, B) if encoder == "minatar" else numbers_of(*shape)[:2]
    grads = torch.ones(2, B, L), torch.ones(2, B)
    found = []
    for _ in range(2):
        for each in observations:
            passes.record(each)
        passes.backward(*grads, forget=False)
        found.append(flat.grad.clone())
        passes.backward(*grads)
        found.append(flat.grad.clone())
    assert all(torch.equal(found[0], other) for other in found[1:])
    assert found[0].abs().sum() > 0


@pytest.mark.parametrize("name", ["encoder.conv1.bias", "encoder.linear.bias", "value.bias"])
def test_they_do_not_hide_what_is_not_a_number(name: str) -> None:
    flat, passes, _ = make("minatar", (10, 10, 3))
    flat.layout.named(flat.vector)[name][-1] = torch.nan
    passes.refresh()
    assert passes.forward(board(B)).values.isnan().all()


def test_a_vector_does_not_hide_what_is_not_a_number() -> None:
    flat, passes, _ = make("mlp", (4,))
    flat.layout.named(flat.vector)["encoder.linear1.bias"][3] = torch.nan
    passes.refresh()
    assert passes.forward(numbers_of(4)[0]).logits.isnan().all()


@pytest.mark.parametrize("encoder", ["minatar", "mlp"])
def test_auto_takes_them_and_float32_stays_what_it_was(encoder: str) -> None:
    assert resolve(AgentConfig(encoder=encoder)).precision == "float32_compiled"
    assert resolve(AgentConfig(encoder=encoder, device="cuda")).precision == "float32"
    assert resolve(AgentConfig(encoder=encoder, precision="float32")).precision == "float32"


@pytest.mark.parametrize(("encoder", "device"), [("nature", "cpu"), ("minatar", "cuda")])
def test_networks_without_them_are_refused(encoder: str, device: str) -> None:
    given = AgentConfig(encoder=encoder, device=device, precision="float32_compiled")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=r"agent\.precision = float32_compiled: .*take float32"):
        resolve(given)


@pytest.mark.parametrize(("encoder", "shape"), [("minatar", (10, 10, 3)), ("mlp", (4,))])
def test_outputs_of_a_forward_pass_stay_as_they_are(encoder: str, shape: tuple[int, ...]) -> None:
    _, passes, _ = make(encoder, shape)
    first, second = (board(T, B) if encoder == "minatar" else numbers_of(*shape))[:2]
    outputs = passes.forward(first)
    before = [part.clone() for part in outputs]
    passes.forward(second)
    assert all(map(torch.equal, outputs, before))
