from __future__ import annotations

import pytest
import torch

from leap_rl.networks.actor_critic import ActorCritic
from leap_rl.networks.encoders import initialize, make_encoder
from leap_rl.networks.parameters import flatten_parameters, layout_of

SHAPE = (20, 20, 3)


def make(num_actions: int = 5) -> ActorCritic:
    network = ActorCritic("mnih2013", observation_shape=SHAPE, num_logits=num_actions)
    initialize(network, torch.Generator().manual_seed(0))
    return network


@pytest.mark.parametrize("num_actions", [3, 18])
def test_the_shared_prefix_does_not_depend_on_the_heads(num_actions: int) -> None:
    shared = layout_of(make(num_actions)).before("policy")
    alone = layout_of(make_encoder("mnih2013", SHAPE))
    assert [leaf.offset for leaf in shared.leaves] == [leaf.offset for leaf in alone.leaves]
    assert shared.size == alone.size


def test_heads_are_linear_in_the_features() -> None:
    network = make()
    observations = torch.randint(0, 256, (4, *SHAPE), dtype=torch.uint8)
    with torch.no_grad():
        logits, values = network(observations)
        features = network.encoder(observations)
    assert logits.shape == (4, 5)
    assert values.shape == (4,)
    policy, value = network.policy, network.value
    assert torch.allclose(logits, features @ policy.weight.T + policy.bias, atol=1e-6)
    assert torch.allclose(values, features @ value.weight[0] + value.bias, atol=1e-6)


def test_one_observation_keeps_its_batch_dimension() -> None:
    logits, values = make()(torch.zeros(1, *SHAPE, dtype=torch.uint8))
    assert logits.shape == (1, 5)
    assert values.shape == (1,)


def test_making_the_network_draws_nothing_and_the_flat_vector_drives_it() -> None:
    before = torch.random.get_rng_state()
    network = ActorCritic("mnih2013", observation_shape=SHAPE, num_logits=5)
    assert torch.equal(torch.random.get_rng_state(), before)
    flat = flatten_parameters(network)
    assert not flat.vector.any()
    observations = torch.full((1, *SHAPE), 255, dtype=torch.uint8)
    assert not network(observations)[0].any()
    flat.vector.fill_(0.01)
    assert network(observations)[0].min() > 0
