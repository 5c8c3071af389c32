"""Encoders that a config names by their module."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from leap_rl.learners.config import AgentConfig
from leap_rl.learners.hardware import check_machine, resolve
from leap_rl.networks.actor_critic import ActorCritic
from leap_rl.networks.custom import EncoderSpec, source_sha256
from leap_rl.networks.encoders import features_of, make_encoder, random_encoder
from leap_rl.networks.parameters import flatten_parameters, load_parameters
from tests.networks.custom_encoders import MODULE

SHAPE = (10, 10, 3)


def spec(name: str, **arguments: object) -> EncoderSpec:
    return EncoderSpec(name=f"{MODULE}:{name}", arguments=arguments)


def seeded(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def test_its_constructor_draws_its_weights_from_a_stream_of_their_own() -> None:
    before = torch.get_rng_state()
    one, same, other = (
        random_encoder(spec("Plain"), SHAPE, seeded(seed), gain=2.0).state_dict()
        for seed in (0, 0, 1)
    )
    assert torch.equal(torch.get_rng_state(), before), "the global stream was left alone"
    for name, values in one.items():
        assert torch.equal(values, same[name])
        assert torch.equal(values, other[name]) == name.startswith("norm."), name
        assert values.any() or name == "norm.bias", f"{name} was drawn"


def test_arguments_reach_it_and_its_width_is_found() -> None:
    wide = spec("Plain", width=12)
    assert features_of(wide, make_encoder(wide, SHAPE), SHAPE) == 12
    network = ActorCritic(wide, observation_shape=SHAPE, num_logits=4)
    assert network.policy.weight.shape == (4, 12)


def test_a_tied_parameter_is_one() -> None:
    tied = random_encoder(spec("Tied"), SHAPE, seeded(3), gain=None)
    features_of(spec("Tied"), tied, SHAPE)  # which refuses what is no encoder
    flat = flatten_parameters(tied)
    named = flat.layout.named(flat.vector)
    assert "offset" in named
    assert "shift" not in named
    other = make_encoder(spec("Tied"), SHAPE)
    load_parameters(other, named)
    assert torch.equal(other.get_parameter("shift"), tied.get_parameter("offset"))
    with pytest.raises(ValueError, match=r"missing \['offset'\]"):
        load_parameters(other, {name: part for name, part in named.items() if name != "offset"})


@pytest.mark.parametrize("encoder", ["mlp", spec("OfVectors")])
def test_vectors_of_bytes_are_scaled_for_it(encoder: str | EncoderSpec) -> None:
    network = ActorCritic(encoder, observation_shape=(6,), num_logits=4)
    for parameter in network.parameters():
        torch.nn.init.normal_(parameter, generator=seeded(1))
    observations = torch.randint(0, 256, (5, 6), generator=seeded(2))
    for seen, scaled in zip(
        network(observations.to(torch.uint8)), network(observations / 255), strict=True
    ):
        assert torch.equal(seen, scaled)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("WithState", r"state besides its parameters \(norm.num_batches_tracked, norm.running_"),
        ("WithDropout", "other features for the same observations"),
        ("WithFlatOutput", r"returns \[16\] for two observations"),
        ("WithHalfOutput", "returns torch.bfloat16"),
        ("OfOthers", r"does not take uint8 observations \[2, 10, 10, 3\]"),
        ("double", "is torch.float64"),
        ("without_parameters", "has no parameters"),
        ("nothing", "returns NoneType, and must return a torch.nn.Module"),
        ("no_function", "is no class or function"),
        ("missing", r"cannot be imported \(AttributeError"),
    ],
)
def test_what_cannot_be_an_encoder_is_refused_in_a_line(name: str, message: str) -> None:
    with pytest.raises(ValueError, match=f"^agent.encoder = {MODULE}:{name}: .*{message}") as found:
        ActorCritic(spec(name), observation_shape=SHAPE, num_logits=4)
    assert "\n" not in str(found.value)


def test_arguments_that_it_does_not_take_are_named() -> None:
    with pytest.raises(ValueError, match=r"agent.encoder_arguments = \{'depth': 3\}: TypeError"):
        make_encoder(spec("Plain", depth=3), SHAPE)


def test_draws_from_elsewhere_are_refused() -> None:
    with pytest.raises(ValueError, match="draws offset from another random stream than torch's"):
        random_encoder(spec("DrawnByNumpy"), SHAPE, seeded(0), gain=None)


def test_its_file_is_written_down_and_must_stay(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = tmp_path / "encoder_in_a_file.py"
    source.write_text("from tests.networks.custom_encoders import Plain\nclass Mine(Plain): ...\n")
    monkeypatch.syspath_prepend(tmp_path)
    config = resolve(AgentConfig(encoder="encoder_in_a_file:Mine"))
    assert config.encoder_sha256 == source_sha256(config.encoder_spec)
    assert config.precision == "float32"
    check_machine(config)
    source.write_text(source.read_text() + "# changed\n")
    for use in (check_machine, lambda one: make_encoder(one.encoder_spec, SHAPE)):
        with pytest.raises(ValueError, match=r"file is not that of agent\.encoder_sha256"):
            use(config)
