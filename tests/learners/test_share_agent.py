"""Whole agents that tasks share: heads lie in the path, the sum and the initialization too."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise
from typing import Any, cast

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from leap_rl.core.choices import Share
from leap_rl.core.determinism import Precision
from leap_rl.envs.gymnasium_config import GymnasiumConfig
from leap_rl.learners.a2c.a2c import A2CLearner
from leap_rl.learners.a2c.distributions import Categorical
from leap_rl.learners.a2c.task import ActorCriticTask
from leap_rl.learners.config import AgentConfig, InitialWeights, RllibConfig
from leap_rl.learners.defaults import settings_of
from leap_rl.learners.learner import Learner
from leap_rl.learners.registry import make_learner
from leap_rl.learners.task import TaskSpec
from leap_rl.meta import FOMAML, Leap, Pretraining, Reptile
from leap_rl.meta.gradient_path import Point
from leap_rl.networks.actor_critic import ActorCritic, Outputs
from leap_rl.networks.encoders import random_encoder
from leap_rl.networks.parameters import load_parameters
from leap_rl.tasks.config import TaskConfig
from leap_rl.training.runtime.ray.environment import LOCAL, make_ray_runtime
from tests.learners.literal_loss import literal_loss

KINDS: dict[str, TaskConfig] = {
    "catch": TaskConfig(kind="catch", games="all", agent_steps=120, num_envs=4, unroll_length=5),
    "vectors": TaskConfig(
        kind="gymnasium",
        games=["CartPole-v1", "leap_rl/CartPole-v1@length=1.0"],
        agent_steps=120,
        num_envs=4,
        unroll_length=5,
    ),
    "minatar": TaskConfig(
        kind="gymnasium",
        games=["MinAtar/Breakout-v0", "MinAtar/Asterix-v0"],
        gymnasium=GymnasiumConfig(minatar="palette"),
        agent_steps=120,
        num_envs=4,
        unroll_length=5,
    ),
    "continuous": TaskConfig(
        kind="gymnasium", games=["Pendulum-v1"], agent_steps=120, num_envs=4, unroll_length=5
    ),
}
HEADS = ["policy.weight", "policy.bias", "value.weight", "value.bias"]


def make(kind: str = "catch", *, share: Share = "agent", **agent: Any) -> Learner:
    options = AgentConfig(share=share, precision="float32", lr=1e-3, **agent)
    return make_learner(task=KINDS[kind], agent=options)


def begin(tasks: Learner, *, seed: int = 3, theta: int | Tensor = 1) -> ActorCriticTask:
    task = cast(ActorCriticTask, tasks(TaskSpec(game=tasks.task.resolved_games[0], seed=seed)))
    task.start(tasks.random_initialization(theta) if isinstance(theta, int) else theta)
    return task


def learn(task: ActorCriticTask) -> list[Point]:
    points: list[Point] = []

    def keep(point: Point) -> None:
        assert point.grad is not None
        points.append(
            replace(point, theta=point.theta.clone(), grad=cast(Tensor, point.grad).clone())
        )

    while not task.done:
        task.advance(keep)
    return points


@pytest.mark.parametrize("weights", ["torch", "he"])
@pytest.mark.parametrize("value_gain", [None, 0.01])
def test_a_random_start_is_drawn_as_agents_draw_theirs(
    weights: InitialWeights, value_gain: float | None
) -> None:
    """The encoder's bits are those of a shared encoder; the heads follow in the same stream."""
    given: dict[str, Any] = {"initial_weights": weights, "value_gain": value_gain}
    tasks, encoders = make(**given), make(share="encoder", **given)
    encoder, theta0 = (one.random_initialization(7) for one in (encoders, tasks))
    assert torch.equal(theta0[: len(encoder)], encoder)
    draws = torch.Generator().manual_seed(7)
    agent = encoders.agent
    random_encoder(agent.encoder_spec, (84, 84, 3), draws, gain=agent.gains["encoder"])
    own = A2CLearner(
        agent,
        observation_shape=(84, 84, 3),
        policies=Categorical(3),
        head_generator=draws,
        action_generator=torch.Generator(),
    )
    named = tasks.shared_layout().named(theta0)
    assert list(named)[-4:] == HEADS
    assert all(torch.equal(named[name], own.flat.copies()[name]) for name in HEADS)
    assert named["policy.weight"].any()


@pytest.mark.parametrize("share", ["agent", "encoder"])
def test_continuous_actions_are_first_drawn_as_wide_as_one_says(share: Share) -> None:
    given: dict[str, Any] = {"share": share, "initial_weights": "he"}
    plain, narrow = (
        begin(make("continuous", initial_log_std=log_std, **given)).named_parameters()
        for log_std in (0.0, -1.5)
    )
    assert narrow.pop("policy.bias").tolist() == [0.0, -1.5]  # of the mean, of the deviation
    assert plain.pop("policy.bias").tolist() == [0.0, 0.0]
    assert all(torch.equal(plain[name], narrow[name]) for name in plain)
    with pytest.raises(ValueError, match=r"^agent\.initial_log_std = -1\.5: is for continuous act"):
        make("vectors", initial_log_std=-1.5).resolved_agent()
    with pytest.raises(ValueError, match=r"^agent\.initial_log_std = 3: must lie in \[-5, 2\]$"):
        AgentConfig(initial_log_std=3)


def test_every_task_starts_from_the_same_heads() -> None:
    tasks = make()
    theta0 = tasks.random_initialization(1)
    for seed in (0, 1):
        task = begin(tasks, seed=seed)
        assert torch.equal(task.learner.shared, theta0)
        assert torch.equal(task.learner.flat.vector, theta0), "there is nothing else"
        assert list(task.named_parameters()) == [one.name for one in tasks.shared_layout().leaves]


def in_float64(task: ActorCriticTask, theta: Tensor) -> ActorCritic:
    """Return the task's network with the parameters of a point, in float64."""
    network = ActorCritic(
        task.learner.config.encoder_spec,
        observation_shape=task.envs.observation_shape,
        num_logits=task.learner.policies.num_logits,
    )
    load_parameters(network, task.learner.flat.layout.named(theta))
    network.double()
    # The encoder makes float32 of what it is given; its first layer takes it from there.
    first = next(one for one in network.modules() if isinstance(one, nn.Conv2d | nn.Linear))
    first.register_forward_pre_hook(lambda _, given: (given[0].double(),))
    return network


@pytest.mark.parametrize("kind", ["catch", "vectors", "minatar", "continuous"])
def test_the_sum_has_the_heads_gradient_as_autograd_has_it(kind: str) -> None:
    """Equation 8 with p = 2 over three updates, from losses and gradients in float64."""
    encoder = {"minatar": "minatar", "catch": "mnih2013"}.get(kind, "mlp")
    tasks = make(kind, encoder=encoder, reward_clip=5.0)
    task = begin(tasks)
    config = task.learner.config
    theta0 = task.learner.shared.clone()
    path = Leap(p=2, metric="euclidean").start(theta0, borrow=True)
    literal: list[tuple[Tensor, float, Tensor]] = []
    for last in (False, False, False, True):
        theta = task.learner.shared.clone()
        loss, batch, _, _ = task._unroll()
        network = in_float64(task, theta)
        logits, values = network(torch.cat(batch.observations))
        again = literal_loss(
            Outputs(logits, values),
            batch.targets,
            value_coefficient=settings_of(config).value_coefficient,
            entropy_coefficient=config.entropy_coefficient,
        )
        torch.autograd.backward([again.total])
        grads = {name: part.grad for name, part in network.named_parameters()}
        assert list(grads)[-4:] == HEADS
        packed = {name: cast(Tensor, grad).float() for name, grad in grads.items()}
        gradient = tasks.shared_layout().pack(packed)
        literal.append((theta.double(), again.total.item(), gradient.double()))
        observed = task.learner.backward()
        assert observed.shape == theta0.shape
        torch.testing.assert_close(observed.double(), gradient.double(), rtol=2e-4, atol=2e-6)
        if last:
            path.finish(theta, loss.total, observed)
        else:
            path.observe(theta, loss.total, observed)
            task.learner.step()
    expected = torch.zeros_like(theta0, dtype=torch.float64)
    for (theta, f, grad), (after, f_after, _) in pairwise(literal):
        expected -= 2 * (-abs(f_after - f) * grad + (after - theta))
    found = path.gradient().double()
    assert float((found - expected).norm()) < 1e-3 * float(expected.norm())
    for name, part in tasks.shared_layout().named(found).items():
        assert part.any(), name
    assert len(found) > len(make(kind, share="encoder", encoder=encoder).random_initialization(0))


@pytest.mark.parametrize("at", [0, 3])
@pytest.mark.parametrize("kind", ["catch", "vectors", "minatar", "continuous"])
def test_a_snapshot_is_restored_to_the_same_bits(kind: str, at: int) -> None:
    tasks = make(kind)
    expected = learn(begin(tasks))
    stopped = begin(tasks)
    for _ in range(at):
        stopped.advance(lambda point: None)
    again = cast(ActorCriticTask, tasks(TaskSpec(game=tasks.task.resolved_games[0], seed=99)))
    again.restore(stopped.state())
    points = learn(again)
    assert len(points) == len(expected) - at
    for one, other in zip(points, expected[at:], strict=True):
        assert torch.equal(one.theta, other.theta)
        assert torch.equal(cast(Tensor, one.grad), cast(Tensor, other.grad))
    assert not torch.equal(points[0].theta, points[-1].theta)


@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
@pytest.mark.parametrize("max_grad_norm", [0.05, np.inf])
def test_an_agent_learns_alike_whatever_is_shared(
    precision: Precision, max_grad_norm: float
) -> None:
    """From the same parameters: what is shared is a matter of the path alone."""
    options = {"max_grad_norm": max_grad_norm}
    whole, encoders = (
        replace(one, agent=replace(one.agent, precision=precision))
        for one in (make(**options), make(share="encoder", **options))
    )
    own = begin(encoders)
    shared = begin(whole, theta=own.learner.flat.vector.clone())
    points, others = learn(shared), learn(own)
    assert torch.equal(shared.learner.flat.vector, own.learner.flat.vector)
    for one, other in zip(points, others, strict=True):
        assert torch.equal(one.theta[: len(other.theta)], other.theta)
        assert torch.equal(one.loss, other.loss)  # type: ignore[arg-type]
    assert all(
        cast(float, one.step_length) > cast(float, other.step_length)
        for one, other in zip(points[1:], others[1:], strict=True)
    )
    assert points[1].step_length == pytest.approx(
        float((points[1].theta - points[0].theta).double().norm()), rel=1e-4
    )


@pytest.mark.parametrize(
    "method",
    [
        Leap(p=1, metric="optimizer", task_unit=True),
        Leap(p=2, metric="euclidean"),
        Reptile(),
        FOMAML(),
        Pretraining(),
    ],
    ids=lambda method: type(method).__name__,
)
def test_every_method_moves_the_heads(method: Any) -> None:
    tasks = make("vectors")
    task = begin(tasks)
    theta0 = task.learner.shared.clone()
    path = method.start(theta0, borrow=True)
    while not task.done:
        task.advance(path.visit)
    path.end(task.end_point(with_grad=True))
    contribution = path.gradient()
    named = tasks.shared_layout().named(contribution)
    assert all(named[name].any() for name in HEADS)
    if isinstance(method, Pretraining):
        assert torch.equal(contribution, theta0 - task.learner.shared)


def test_an_agent_carried_over_begins_from_the_shared_one() -> None:
    tasks = make()
    first = begin(tasks)
    learn(first)
    theta = tasks.random_initialization(2)
    second = cast(ActorCriticTask, tasks(TaskSpec(game="catch", seed=99)))
    second.carry_over(first.state(), theta)
    assert torch.equal(second.learner.flat.vector, theta), "heads and all"
    kept = second.learner.optimizer.mean_square
    assert torch.equal(kept, first.learner.optimizer.mean_square)


def differing() -> Iterator[tuple[TaskConfig, str]]:
    atari = TaskConfig(games=["pong", "breakout", "qbert"])
    yield atari, "4 actions (breakout), 6 actions (pong, qbert)"
    games = ["CartPole-v1", "Acrobot-v1", "Pendulum-v1"]
    padded = GymnasiumConfig(pad="zeros")
    yield (
        TaskConfig(kind="gymnasium", games=games, gymnasium=padded),
        "1 continuous numbers (Pendulum-v1), 2 actions (CartPole-v1), 3 actions (Acrobot-v1)",
    )


@pytest.mark.parametrize(("task", "told"), list(differing()))
@pytest.mark.parametrize("algorithm", ["a2c", "rllib:PPO"])
def test_games_of_other_actions_are_refused(task: TaskConfig, told: str, algorithm: str) -> None:
    tasks = make_learner(task=task, agent=AgentConfig(algorithm=algorithm, share="agent"))
    for ask in (tasks.resolved_agent, tasks.shared_layout, lambda: tasks.random_initialization(0)):
        with pytest.raises(ValueError, match=r"agent\.share = agent: the games must") as refused:
            ask()
        assert told in str(refused.value)
        assert str(refused.value).endswith("or agent.share = encoder")
    make_learner(task=task, agent=AgentConfig(algorithm=algorithm)).resolved_agent()


@pytest.mark.parametrize("game", ["MinAtar/Breakout-v0", "Pendulum-v1"])
def test_ppo_shares_whole_agents_too(game: str) -> None:
    make_ray_runtime(trainers=1, address=LOCAL)  # what Ray must find when it is imported
    minatar = GymnasiumConfig(minatar="palette" if "MinAtar" in game else "channels")
    task = TaskConfig(
        kind="gymnasium",
        games=[game],
        gymnasium=minatar,
        agent_steps=128,
        num_envs=4,
        unroll_length=16,
    )
    rllib = RllibConfig(num_epochs=1, minibatch_size=32, value_clip=1e9)
    agent = AgentConfig(algorithm="rllib:PPO", share="agent", lr=1e-3, rllib=rllib)
    tasks = make_learner(task=task, agent=agent)
    theta0, points = tasks.random_initialization(1), list[Point]()
    one = tasks(TaskSpec(game=game, seed=5))
    one.start(theta0)
    while not one.done:
        one.advance(points.append)
    end = one.end_point(with_grad=True)
    assert torch.equal(points[0].theta, theta0)
    layout = tasks.shared_layout()
    assert [leaf.name for leaf in layout.leaves][-4:] == HEADS
    moved, gradient = layout.named(end.theta - theta0), layout.named(cast(Tensor, points[0].grad))
    assert all(moved[name].any() and gradient[name].any() for name in HEADS)
    step = (points[1].theta - points[0].theta)[gradient_is_clear(points[0])]
    # Adam's first step goes by the learning rate against the gradient's sign.
    sign = cast(Tensor, points[0].grad)[gradient_is_clear(points[0])].sign()
    torch.testing.assert_close(step, -1e-3 * sign, atol=2e-6, rtol=0.0)
    for name, part in one.named_parameters().items():
        assert torch.equal(part, layout.named(end.theta)[name])
    one.close()


def gradient_is_clear(point: Point) -> Tensor:
    assert point.grad is not None
    return point.grad.abs() > 1e-4
