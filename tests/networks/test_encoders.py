from __future__ import annotations

import math

import pytest
import torch

from leap_rl.networks.actor_critic import ActorCritic
from leap_rl.networks.encoders import ENCODERS, OF_IMAGES, initialize, make_encoder
from leap_rl.networks.parameters import flatten_parameters, layout_of

ATARI = (84, 84, 3)


def seeded(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def screens(num: int, shape: tuple[int, int, int], seed: int = 0) -> torch.Tensor:
    return torch.randint(0, 256, (num, *shape), dtype=torch.uint8, generator=seeded(seed))


def impala_section(inputs: int, outputs: int) -> int:
    """One convolution, and two blocks of two."""
    return outputs * (9 * inputs) + outputs + 4 * (outputs * (9 * outputs) + outputs)


CONV1, CONV2 = 16 * (8 * 8 * 3) + 16, 32 * (4 * 4 * 16) + 32
NATURE = (32 * (8 * 8 * 3) + 32, 64 * (4 * 4 * 32) + 64, 64 * (3 * 3 * 64) + 64)
SECTIONS = impala_section(3, 16) + impala_section(16, 32) + impala_section(32, 32)


@pytest.mark.parametrize(
    ("name", "shape", "parameters", "features"),
    [
        # 84 -> (84 - 8) / 4 + 1 = 20 -> (20 - 4) / 2 + 1 = 9
        ("mnih2013", ATARI, CONV1 + CONV2 + 256 * (9 * 9 * 32) + 256, 256),
        ("nature", ATARI, sum(NATURE) + 512 * (7 * 7 * 64) + 512, 512),  # 84 -> 20 -> 9 -> 7
        ("impala", ATARI, SECTIONS + 256 * (11 * 11 * 32) + 256, 256),  # 84 -> 42 -> 21 -> 11
        ("minatar", (10, 10, 3), 16 * (3 * 3 * 3) + 16 + 128 * (8 * 8 * 16) + 128, 128),
        ("mlp", (4,), 64 * 4 + 64 + 64 * 64 + 64, 64),
    ],
)
def test_sizes_by_hand(name: str, shape: tuple[int, ...], parameters: int, features: int) -> None:
    encoder = make_encoder(name, shape)
    assert sum(parameter.numel() for parameter in encoder.parameters()) == parameters
    assert encoder.features == features
    if name == "mnih2013":
        assert layout_of(encoder).size == parameters == 675_120, "blocks of 16 are full: no padding"


@pytest.mark.parametrize("name", OF_IMAGES)
@pytest.mark.parametrize("shape", [ATARI, (40, 56, 4)])
def test_shapes_and_types(name: str, shape: tuple[int, int, int]) -> None:
    encoder = make_encoder(name, shape)
    initialize(encoder, seeded(1))
    with torch.no_grad():
        features = encoder(screens(2, shape))
    assert features.shape == (2, encoder.features)
    assert features.dtype == torch.float32
    assert features.min() == 0, "the last layer is a ReLU"
    assert features.max() > 0


@pytest.mark.parametrize("name", OF_IMAGES)
def test_each_observation_is_seen_alone_and_in_its_place(name: str) -> None:
    encoder = make_encoder(name, (40, 40, 3))
    initialize(encoder, seeded(1))
    batch = screens(3, (40, 40, 3))
    with torch.no_grad():
        together = encoder(batch)
        for i in range(3):
            assert torch.allclose(encoder(batch[i : i + 1])[0], together[i], atol=1e-5)
    assert not torch.allclose(together[0], together[1], atol=1e-3)


def test_pixels_are_scaled_and_channels_come_last() -> None:
    encoder = make_encoder("mnih2013", (20, 20, 3))
    with torch.no_grad():
        # One unit of each layer passes on the green of the pixel in row 2, column 5.
        encoder.get_parameter("conv1.weight")[0, 1, 2, 5] = 1.0
        encoder.get_parameter("conv2.weight")[0, 0, 0, 0] = 1.0
        encoder.get_parameter("linear.weight")[7, 0] = 1.0
        observation = torch.zeros(1, 20, 20, 3, dtype=torch.uint8)
        observation[0, 2, 5] = torch.tensor([10, 51, 200], dtype=torch.uint8)
        features = encoder(observation)
    assert features[0, 7].item() == pytest.approx(51 / 255)
    assert features.count_nonzero() == 1


def test_a_residual_block_adds_to_its_input() -> None:
    encoder = make_encoder("impala", (8, 8, 3))
    block = encoder.get_submodule("residual1a")
    inputs = torch.randn(1, 16, 8, 8, generator=seeded(0))
    with torch.no_grad():
        assert torch.equal(block(inputs), inputs), "its convolutions are zero"
        block.get_parameter("conv2.bias")[:] = 2.0
        assert torch.equal(block(inputs), inputs + 2.0)
        # Center taps alone, so that both ReLUs show: x + 3·relu(1 − relu(x)) + 2
        block.get_parameter("conv1.weight")[:, :, 1, 1] = -torch.eye(16)
        block.get_parameter("conv1.bias")[:] = 1.0
        block.get_parameter("conv2.weight")[:, :, 1, 1] = 3.0 * torch.eye(16)
        expected = inputs + 3.0 * (1.0 - inputs.relu()).relu() + 2.0
        assert torch.allclose(block(inputs), expected, atol=1e-5)


@pytest.mark.parametrize("name", ENCODERS)
def test_parameters_are_a_function_of_the_generator_and_zero_before(name: str) -> None:
    before = torch.random.get_rng_state()

    def drawn(seed: int) -> list[torch.Tensor]:
        encoder = make_encoder(name, (4,) if name == "mlp" else (36, 36, 3))
        assert not any(parameter.any() for parameter in encoder.parameters())
        initialize(encoder, seeded(seed))
        return [parameter.detach() for parameter in encoder.parameters()]

    assert all(torch.equal(a, b) for a, b in zip(drawn(3), drawn(3), strict=True))
    assert not any(torch.equal(a, b) for a, b in zip(drawn(3), drawn(4), strict=True))
    assert torch.equal(torch.random.get_rng_state(), before), "the global stream is not drawn from"


def test_initialization_is_uniform_within_the_bounds() -> None:
    encoder = make_encoder("mnih2013", ATARI)
    initialize(encoder, seeded(0))
    for layer, inputs in (("conv1", 8 * 8 * 3), ("conv2", 4 * 4 * 16), ("linear", 9 * 9 * 32)):
        bound = 1 / math.sqrt(inputs)
        weight = encoder.get_parameter(f"{layer}.weight")
        assert 0.99 * bound < weight.abs().max().item() <= bound
        # Standard deviation of a uniform distribution, bound/√3; its error is about 1 in √(2n).
        assert weight.std().item() == pytest.approx(bound / math.sqrt(3), rel=0.03)
        bias = encoder.get_parameter(f"{layer}.bias")
        assert 0.5 * bound < bias.abs().max().item() <= bound


def test_initialization_by_a_gain_keeps_the_size_of_activations() -> None:
    encoder = make_encoder("mnih2013", ATARI)
    initialize(encoder, seeded(0), gain=math.sqrt(2.0))
    for layer, inputs in (("conv1", 8 * 8 * 3), ("conv2", 4 * 4 * 16), ("linear", 9 * 9 * 32)):
        weight = encoder.get_parameter(f"{layer}.weight")
        assert weight.std().item() == pytest.approx(math.sqrt(2.0 / inputs), rel=0.03)
        assert not encoder.get_parameter(f"{layer}.bias").any()


def test_mlp_by_hand() -> None:
    encoder = make_encoder("mlp", (4,))
    initialize(encoder, seeded(0))
    inputs = torch.tensor([[1.0, -200.0, 0.5, 3.0], [0.0, 0.0, 1.0, 0.0]])
    one, two = (encoder.get_submodule(f"linear{i}") for i in (1, 2))
    with torch.no_grad():
        expected = torch.tanh(two(torch.tanh(one(inputs))))
        assert torch.equal(encoder(inputs), expected), "numbers are taken as they are"
        pixels = torch.tensor([[255, 0, 51, 0]], dtype=torch.uint8)
        assert torch.equal(encoder(pixels), encoder(torch.tensor([[1.0, 0.0, 0.2, 0.0]])))
    assert pixels.tolist() == [[255, 0, 51, 0]]
    assert inputs[0, 1] == -200


def test_images_and_vectors_are_not_taken_for_one_another() -> None:
    with pytest.raises(ValueError, match=r"mlp: takes vectors, .* \[84, 84, 3\]; take mnih2013"):
        make_encoder("mlp", ATARI)
    with pytest.raises(ValueError, match=r"nature: takes images, .* shape \[4\]; take mlp"):
        make_encoder("nature", (4,))


@pytest.mark.parametrize(
    ("name", "least"), [("mnih2013", 20), ("nature", 36), ("impala", 1), ("minatar", 3)]
)
def test_the_smallest_observation(name: str, least: int) -> None:
    encoder = make_encoder(name, (least, least, 3))
    initialize(encoder, seeded(0))
    assert encoder(screens(1, (least, least, 3))).shape == (1, encoder.features)
    for shape in ((least - 1, 84, 3), (84, least - 1, 3), (84, 84, 0)):
        with pytest.raises(ValueError, match=rf"observation shape .*{shape[0]}, {shape[1]}"):
            make_encoder(name, shape)


def test_observations_that_were_scaled_already_are_refused() -> None:
    with pytest.raises(ValueError, match=r"torch\.float32: images must be uint8 in 0\.\.255"):
        make_encoder("mnih2013", ATARI)(torch.zeros(1, *ATARI))


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


@pytest.mark.parametrize(
    ("name", "shape"),
    [("mlp", (2**40,)), ("nature", (10**5, 10**5, 3)), ("impala", (9999, 9999, 3))],
)
def test_what_no_file_could_hold_takes_no_memory(name: str, shape: tuple[int, ...]) -> None:
    with pytest.raises(ValueError, match=r"its parameters have \d+,.* bytes, and may have 4,294,"):
        make_encoder(name, shape)
