from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import get_args

import pytest
import torch
from torch import Tensor

from leap_rl.learners.a2c.a2c import A2CLearner, Batch
from leap_rl.learners.a2c.distributions import Categorical
from leap_rl.learners.a2c.loss import A2CLoss
from leap_rl.learners.config import AgentConfig, InitialWeights, PathLoss
from leap_rl.networks.actor_critic import Outputs
from leap_rl.networks.encoders import initialize, make_encoder
from leap_rl.networks.parameters import flatten_parameters
from tests.learners.literal_loss import literal_loss

SHAPE = (20, 20, 3)
NUM_ACTIONS = 4
T, B = 3, 4


def seeded(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def draw_shared(seed: int) -> Tensor:
    encoder = make_encoder("mnih2013", SHAPE)
    flat = flatten_parameters(encoder)
    initialize(encoder, seeded(seed))
    return flat.vector


def make(
    config: AgentConfig | None = None, *, theta: int = 0, heads: int = 1, actions: int = 2
) -> A2CLearner:
    # In float32, which the tests' tolerances are for, whatever this machine is best at.
    learner = A2CLearner(
        replace(config or AgentConfig(), precision="float32"),
        observation_shape=SHAPE,
        policies=Categorical(NUM_ACTIONS),
        head_generator=seeded(heads),
        action_generator=seeded(actions),
    )
    learner.load_shared(draw_shared(theta))
    return learner


def screens(seed: int, *leading: int) -> Tensor:
    return torch.randint(0, 256, (*leading, *SHAPE), dtype=torch.uint8, generator=seeded(seed))


@dataclass
class Unroll:
    """What fixed environments would answer, whatever the actions."""

    observations: Tensor
    rewards: Tensor
    next_observations: Tensor
    terminated: Tensor = field(default_factory=lambda: torch.zeros(T, B, dtype=torch.bool))
    truncated: Tensor = field(default_factory=lambda: torch.zeros(T, B, dtype=torch.bool))
    last_observations: tuple[Mapping[int, Tensor], ...] = ({},) * T

    def play(self, learner: A2CLearner) -> tuple[A2CLoss, Batch]:
        for t in range(T):
            learner.act(self.observations[t])
            learner.record(
                self.rewards[t],
                terminated=self.terminated[t],
                truncated=self.truncated[t],
                last_observations=self.last_observations[t],
            )
        return learner.losses(self.next_observations)


def make_unroll(seed: int = 10) -> Unroll:
    rewards = torch.randn(T, B, generator=seeded(seed + 2))
    return Unroll(screens(seed, T, B), rewards, screens(seed + 1, B))


def unroll_with_ends() -> Unroll:
    """Row 0: 2 and 3 cut off. Row 1: 0 terminates, 1 is cut off, 2 both. Row 2: 3 cut off."""
    unroll = make_unroll()
    for t, b in ((1, 0), (1, 2)):
        unroll.terminated[t, b] = True
    for t, b in ((0, 2), (0, 3), (1, 1), (1, 2), (2, 3)):
        unroll.truncated[t, b] = True
    unroll.last_observations = (
        # Not in the order of the environments, as nothing promises that.
        {3: screens(33), 2: screens(32)},
        {1: screens(41)},
        {3: screens(53)},
    )
    return unroll


def values_of(learner: A2CLearner, observations: Tensor) -> Tensor:
    with torch.no_grad():
        values: Tensor = learner.network(observations)[1]
    return values


def update(learner: A2CLearner, unroll: Unroll) -> None:
    unroll.play(learner)
    learner.backward()
    learner.step()


def test_the_shared_parameters_are_the_encoders() -> None:
    learner = make()
    assert learner.shared_size == draw_shared(0).numel()
    assert torch.equal(learner.shared, draw_shared(0))
    named = learner.flat.copies()
    assert list(named) == [
        *(f"encoder.{n}.{p}" for n in ("conv1", "conv2", "linear") for p in ("weight", "bias")),
        *("policy.weight", "policy.bias", "value.weight", "value.bias"),
    ]
    assert torch.equal(named["encoder.conv1.weight"].flatten(), draw_shared(0)[: 16 * 3 * 64])
    assert named["policy.weight"].shape == (NUM_ACTIONS, 256)
    named["policy.weight"].zero_()
    assert learner.flat.copies()["policy.weight"].any(), "they are copies"


def test_load_shared_copies_and_leaves_the_heads() -> None:
    learner = make()
    heads = learner.flat.vector[learner.shared_size :].clone()
    assert heads.any()
    theta = draw_shared(5)
    learner.load_shared(theta)
    theta.zero_()
    assert torch.equal(learner.shared, draw_shared(5))
    assert torch.equal(learner.flat.vector[learner.shared_size :], heads)


def test_heads_start_as_the_config_says() -> None:
    heads = {}
    for weights in get_args(InitialWeights):
        named = make(AgentConfig(initial_weights=weights)).flat.copies()
        heads[weights] = {part: named[f"{part}.weight"].abs().max() for part in ("policy", "value")}
        assert bool(named["value.bias"].any()) == (weights == "torch")
    bound = 1 / math.sqrt(256)
    for weights, part, gain in (
        ("torch", "policy", 1.0),
        ("torch", "value", 1.0),
        ("he", "policy", 0.01 * math.sqrt(3.0)),
        ("he", "value", math.sqrt(3.0)),
    ):
        assert 0.95 * gain * bound < heads[weights][part] <= gain * bound * (1 + 1e-6)


def test_computing_once_is_computing_again() -> None:
    unroll, learner = unroll_with_ends(), make()
    loss, batch = unroll.play(learner)
    path_gradient = learner.backward()

    fresh = make()
    logits, values = fresh.network(unroll.observations.flatten(0, 1))
    expected = literal_loss(
        Outputs(logits, values),
        batch.targets,
        value_coefficient=0.5,
        entropy_coefficient=0.01,
    )
    torch.autograd.backward([expected.total])
    for part, again in zip(loss, expected, strict=True):
        assert part.item() == pytest.approx(again.item(), rel=1e-5)
    # The fresh gradient takes the returns as constants: so does the learner's.
    assert torch.allclose(learner.flat.grad, fresh.flat.grad, rtol=1e-4, atol=1e-6)
    assert fresh.flat.grad.abs().max() > 1e-2
    assert path_gradient.data_ptr() == learner.flat.grad.data_ptr(), "no extra work for the total"
    assert path_gradient.shape == (learner.shared_size,)


def test_returns_bootstrap_from_the_right_observations() -> None:
    unroll, learner = unroll_with_ends(), make(AgentConfig(gamma=0.5))
    _, batch = unroll.play(learner)
    r = unroll.rewards
    following = values_of(learner, unroll.next_observations)
    cut02, cut03, cut11, cut23 = (values_of(learner, screens(s)[None])[0] for s in (32, 33, 41, 53))
    expected = torch.stack(
        [
            # Environment 0 terminates in row 1.
            torch.stack(
                [r[0, 0] + 0.5 * r[1, 0], r[1, 0], r[2, 0] + 0.5 * following[0]],
            ),
            # 1 is cut off in row 1.
            torch.stack(
                [
                    r[0, 1] + 0.5 * r[1, 1] + 0.25 * cut11,
                    r[1, 1] + 0.5 * cut11,
                    r[2, 1] + 0.5 * following[1],
                ]
            ),
            # 2 is cut off in row 0 and both ends in row 1, which counts as termination.
            torch.stack([r[0, 2] + 0.5 * cut02, r[1, 2], r[2, 2] + 0.5 * following[2]]),
            # 3 is cut off in row 0 and in the last row.
            torch.stack(
                [
                    r[0, 3] + 0.5 * cut03,
                    r[1, 3] + 0.5 * r[2, 3] + 0.25 * cut23,
                    r[2, 3] + 0.5 * cut23,
                ]
            ),
        ],
        dim=1,
    )
    assert torch.allclose(batch.targets.returns, expected, atol=1e-6)
    assert torch.equal(torch.stack(batch.observations), unroll.observations)
    assert batch.targets.actions.shape == (T, B)
    assert batch.targets.actions.dtype == torch.int64


def test_rewards_are_clipped_on_both_sides() -> None:
    unroll = make_unroll()
    unroll.rewards = torch.tensor([[7.0, -9.0, 5.0, 4.5], [-5.0, 0.0, 1e9, -5.01], [1.0] * 4])
    _, batch = unroll.play(make(AgentConfig(gamma=0.0)))
    clipped = torch.tensor([[5.0, -5.0, 5.0, 4.5], [-5.0, 0.0, 5.0, -5.0], [1.0] * 4])
    assert torch.equal(batch.targets.returns, clipped)
    assert unroll.rewards[0, 0] == 7, "the caller's rewards stay raw"
    _, batch = unroll.play(make(AgentConfig(gamma=0.0, reward_clip=float("inf"))))
    assert torch.equal(batch.targets.returns, unroll.rewards)


def test_a_gradient_below_the_bound_is_not_scaled_up() -> None:
    unbounded, loose, tight = (
        make(AgentConfig(max_grad_norm=bound)) for bound in (math.inf, 1e6, 1e-3)
    )
    for learner in (unbounded, loose, tight):
        make_unroll().play(learner)
        learner.backward()
        learner.step()
    assert torch.equal(loose.flat.vector, unbounded.flat.vector)
    assert not torch.equal(tight.flat.vector, unbounded.flat.vector)


@pytest.mark.parametrize("path_loss", ["policy", "value"])
def test_a_path_over_a_part_of_the_loss(path_loss: PathLoss) -> None:
    unroll = make_unroll()
    learner, whole = make(AgentConfig(path_loss=path_loss)), make()
    _, batch = unroll.play(learner)
    path_gradient = learner.backward()
    unroll.play(whole)
    whole.backward()
    assert torch.equal(learner.flat.grad, whole.flat.grad), "the update descends the total"
    value_head = learner.flat.layout.named(learner.flat.grad)["value.weight"]
    assert value_head.abs().max() > 1e-3

    fresh = make()
    logits, values = fresh.network(unroll.observations.flatten(0, 1))
    advantages = batch.targets.returns.flatten() - values
    log_taken = torch.log_softmax(logits, -1)[torch.arange(T * B), batch.targets.actions.flatten()]
    parts = {
        "policy": -(log_taken * advantages.detach()).mean(),
        "value": (advantages * advantages).mean(),
    }
    torch.autograd.backward([parts[path_loss]])
    expected = fresh.flat.grad[: fresh.shared_size]
    assert torch.allclose(path_gradient, expected, rtol=1e-4, atol=1e-6)
    assert not torch.allclose(path_gradient, learner.flat.grad[: learner.shared_size], atol=1e-3)


def test_two_updates_of_rmsprop_written_out() -> None:
    config = AgentConfig(lr=0.01, rmsprop_alpha=0.9, rmsprop_eps=1e-3, rmsprop_start="zero")
    learner = make(config)
    mean_square = torch.zeros_like(learner.flat.vector, dtype=torch.float64)
    for seed in (10, 20):
        before = learner.flat.vector.double()
        update(learner, make_unroll(seed))
        grad = learner.flat.spare_grad.double()
        # The epsilon, outside the root, is of the order of the root: inside it would show.
        mean_square = 0.9 * mean_square + 0.1 * grad**2
        expected = before - 0.01 * grad / (mean_square.sqrt() + 1e-3)
        assert torch.allclose(learner.flat.vector.double(), expected, rtol=0, atol=1e-6)
        changed = learner.flat.layout.named((learner.flat.vector - before).abs())
        assert all(change.max() > 1e-3 for change in changed.values())
        step = (expected - before)[: learner.shared_size]
        assert learner.step_length == pytest.approx(step.norm().item(), rel=1e-4)
        assert torch.equal(learner.flat.spare.double(), before), "the last point stays readable"


def test_an_unroll_whose_gradient_nobody_asked_for_is_forgotten() -> None:
    gradients = []
    for skips in (False, True):
        learner, unroll = make(), make_unroll()
        if skips:
            unroll.play(learner)
            learner.action_generator.manual_seed(2)
        unroll.play(learner)
        gradients.append(learner.backward().clone())
    assert torch.equal(*gradients)


def test_evaluate_is_the_same_function_at_another_point() -> None:
    unroll, learner = unroll_with_ends(), make(AgentConfig(lr=1e-4))
    loss, batch = unroll.play(learner)
    acted_values = values_of(learner, unroll.observations.flatten(0, 1))
    here = learner.evaluate(batch)
    assert all(torch.equal(a, b) for a, b in zip(here, loss, strict=True))

    learner.backward()
    before = learner.flat.vector.double()
    learner.step()
    after = learner.evaluate(batch)
    with torch.no_grad():
        logits, values = learner.network(unroll.observations.flatten(0, 1))
    acted = batch.targets.returns - acted_values.view(T, B)
    torch.testing.assert_close(batch.targets.advantages, acted, rtol=1e-4, atol=1e-5)
    expected = literal_loss(
        Outputs(logits, values),
        batch.targets,
        value_coefficient=0.5,
        entropy_coefficient=0.01,
    )
    for part, again in zip(after, expected, strict=True):
        assert part.item() == pytest.approx(again.item(), rel=1e-4)
    # Its differences are those that the gradient promises. With the advantages taken again they
    # would not be: the values move too, and the policy's term with them.
    promised = (learner.flat.vector.double() - before) @ learner.flat.spare_grad.double()
    assert promised < -1e-3
    difference = after.total.double().item() - loss.total.double().item()
    assert difference == pytest.approx(promised.item(), rel=0.05)


def run_updates(learner: A2CLearner, seeds: tuple[int, ...]) -> tuple[Tensor, Tensor]:
    actions = []
    for seed in seeds:
        _, batch = make_unroll(seed).play(learner)
        learner.backward()
        learner.step()
        actions.append(batch.targets.actions)
    return learner.flat.vector.clone(), torch.stack(actions)


def test_the_seeds_decide_every_bit() -> None:
    before = torch.random.get_rng_state()
    vector, actions = run_updates(make(), (10, 20))
    assert torch.equal(torch.random.get_rng_state(), before), "the global stream is not drawn from"
    torch.rand(5)
    again, again_actions = run_updates(make(), (10, 20))
    assert torch.equal(vector, again)
    assert torch.equal(actions, again_actions)
    for other in (make(theta=99), make(heads=99)):
        assert not torch.equal(run_updates(other, (10, 20))[0], vector)
    other_vector, other_actions = run_updates(make(actions=99), (10, 20))
    assert not torch.equal(other_vector, vector)
    assert not torch.equal(other_actions, actions)


def test_out_of_turn() -> None:
    learner, unroll = make(), make_unroll()
    with pytest.raises(AssertionError, match="at least one"):
        learner.losses(unroll.next_observations)
    learner.act(unroll.observations[0])
    with pytest.raises(AssertionError, match="not recorded"):
        learner.act(unroll.observations[1])
    with pytest.raises(AssertionError, match="not recorded"):
        learner.losses(unroll.next_observations)
    with pytest.raises(AssertionError, match="under way"):
        learner.load_shared(draw_shared(0))
