"""Multi-headed finetuning out of rounds that are interrupted, against plain loops."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.numpy import load_file
from torch import Tensor

from leap_rl.cli import main
from leap_rl.core.errors import RunFailedError
from leap_rl.core.seeding import Purpose, derive_seed
from leap_rl.learners.a2c.task import ActorCriticTask
from leap_rl.learners.config import AgentConfig
from leap_rl.learners.gradient_descent.task import QuadraticTask, bowl
from leap_rl.learners.learner import Learner
from leap_rl.learners.registry import make_learner
from leap_rl.learners.task import TaskSpec
from leap_rl.meta import OuterStep, Pretraining
from leap_rl.storage.run_folder import INITIALIZATION, RunFolder
from leap_rl.tasks.config import TaskConfig
from leap_rl.training.messages import Bytes
from leap_rl.training.rounds.meta_training import draw_games, task_seed
from leap_rl.training.trainer.snapshot import agent_to_carry, carry_over

LR = 0.01
BOWLS = make_learner(
    task=TaskConfig(
        kind="quadratic",
        games=["bowl_0", "bowl_1", "bowl_2"],
        agent_steps=2,
        num_envs=2,
        unroll_length=1,
    ),
    agent=AgentConfig(lr=LR),
)
CATCH = make_learner(
    task=TaskConfig(kind="catch", games="all", agent_steps=20, num_envs=4, unroll_length=5),
    agent=AgentConfig(lr=1e-3, max_grad_norm=0.5),
)


WHOLE = replace(CATCH, agent=replace(CATCH.agent, share="agent"))


def with_updates(make: Learner, updates: int) -> Learner:
    budget = updates * make.task.agent_steps_per_update
    return replace(make, task=replace(make.task, agent_steps=budget))


def finetune(make: Learner, rounds: list[list[str]]) -> list[Tensor]:
    """The encoders after each round, by what the trainers and the parameter server do."""
    outer = OuterStep(make.random_initialization(1), optimizer="sgd", meta_lr=1.0)
    agents: dict[str, Bytes] = {}
    encoders = []
    for number, games in enumerate(rounds):
        contributions = []
        for game in games:
            # A seed of the round's: what goes on must not depend on it.
            seed = 100 * number if game in agents else make.task.resolved_games.index(game)
            task = make(TaskSpec(game=game, seed=seed))
            path = Pretraining().start(outer.theta, borrow=True)
            if game in agents:
                carry_over(agents[game], task, outer.theta)
            else:
                task.start(outer.theta)
            while not task.done:
                task.advance(path.visit)
            agents[game] = agent_to_carry(task)
            end = task.end_point(with_grad=False)
            path.finish(end.theta, end.loss, end.grad, step_length=end.step_length)
            contributions.append(path.gradient())
            task.close()
        encoders.append(outer.step(contributions).theta)
    return encoders


def multi_task_loop(
    make: Learner,
    rounds: list[list[str]],
    *,
    seeds: Mapping[str, int] | None = None,
    theta: Tensor | None = None,
) -> list[Tensor]:
    """The encoders after each round, with one live agent a game that is never interrupted."""
    total = sum(len(games) for games in rounds) * make.task.updates
    seeds = seeds or {game: seed for seed, game in enumerate(make.task.resolved_games)}
    agents = {
        game: with_updates(make, total)(TaskSpec(game=game, seed=seed))
        for game, seed in seeds.items()
    }
    theta = make.random_initialization(1) if theta is None else theta
    for agent in agents.values():
        agent.start(theta)
    encoders = []
    for games in rounds:
        mean = torch.zeros(theta.numel(), dtype=torch.float64)
        for game in games:
            agent = agents[game]
            put_in(agent, theta)
            for _ in range(make.task.updates):
                agent.advance(lambda *_, **__: None)
            mean += (theta.double() - shared_of(agent).double()).float()
        theta = theta - (mean / len(games)).float()
        encoders.append(theta)
    return encoders


def put_in(agent: object, theta: Tensor) -> None:
    if isinstance(agent, ActorCriticTask):
        agent.learner.load_shared(theta)
    else:
        assert isinstance(agent, QuadraticTask)
        agent.start(theta)


def shared_of(agent: object) -> Tensor:
    if isinstance(agent, ActorCriticTask):
        return agent.learner.shared
    assert isinstance(agent, QuadraticTask)
    return agent.named_parameters()["theta"]


@pytest.mark.parametrize(
    ("make", "updates"),
    [(BOWLS, 1), (BOWLS, 3), (CATCH, 3), (WHOLE, 3)],
    ids=["bowls-1", "bowls-3", "catch-3", "whole agents-3"],
)
def test_rounds_give_the_bits_of_a_loop_over_live_agents(make: Learner, updates: int) -> None:
    make = with_updates(make, updates)
    games = make.task.resolved_games
    assert len(games) > 1
    # The second and the third round leave the last game out: it goes on from where it was left.
    rounds = [list(games), list(games[:-1]), list(games[:1]), list(games[::-1])]
    encoders = finetune(make, rounds)
    for encoder, expected in zip(encoders, multi_task_loop(make, rounds), strict=True):
        assert torch.equal(encoder, expected)
    moved = [float((b - a).norm()) for a, b in pairwise(encoders)]
    assert min(moved) > 1e-4


def test_a_run_that_is_stopped_gives_the_bits_of_the_loop(tmp_path: Path) -> None:
    """Two of three games a round: server, trainers, folder and all."""
    path, quiet = tmp_path / "run", ["--tracking.console", "quiet", "--tracking.tensorboard"]
    options = [
        *[
            "--meta.method",
            "pretraining",
            "--meta.updates_per_round",
            "2",
            "--meta.batch_size",
            "2",
        ],
        *["--task.kind", "quadratic", "--task.games", '["bowl_0", "bowl_1", "bowl_2"]'],
        *["--task.num_envs", "2", "--task.unroll_length", "1", "--agent.lr", str(LR)],
        *["--runtime.kind", "local", "--run_dir", str(path), *quiet, "false"],
    ]
    assert main(["train", *options, "--meta.meta_steps", "2"]) == 0
    assert main(["resume", str(path), "--meta.meta_steps", "6", *quiet, "false"]) == 0
    rounds = [draw_games(0, number, BOWLS.task.resolved_games, 2) for number in range(6)]
    seeds: dict[str, int] = {}
    for number, games in enumerate(rounds):
        for slot, game in enumerate(games):
            seeds.setdefault(game, task_seed(0, number, slot))
    start = BOWLS.random_initialization(derive_seed(0, Purpose.INITIALIZATION))
    expected = multi_task_loop(with_updates(BOWLS, 2), rounds, seeds=seeds, theta=start)
    for number, encoder in enumerate(expected, start=1):
        file = RunFolder(path).checkpoint(number) / INITIALIZATION
        np.testing.assert_array_equal(load_file(file)["theta"], encoder.numpy())


def test_one_update_a_round_is_synchronous_multi_task_sgd(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without noise: theta <- theta - lr mean_g a_g (theta - c_g), in float64."""
    monkeypatch.setattr("leap_rl.learners.gradient_descent.task.NOISE", 0.0)
    games = BOWLS.task.resolved_games
    theta = BOWLS.random_initialization(1).double().numpy()
    bowls = [bowl(game) for game in games]
    for encoder in finetune(BOWLS, [list(games)] * 50):
        gradients = [one.curvature.numpy() * (theta - one.lowest.numpy()) for one in bowls]
        theta = theta - LR * np.mean(gradients, axis=0)
        np.testing.assert_allclose(encoder.numpy(), theta, atol=1e-5)


def test_an_agent_carried_over_from_another_task_is_refused_in_one_line() -> None:
    task = CATCH(TaskSpec(game="catch", seed=0))
    theta0 = CATCH.random_initialization(1)
    task.start(theta0)
    agent = agent_to_carry(task)
    wider = replace(CATCH, task=replace(CATCH.task, num_envs=5, agent_steps=25))
    for damaged in (agent[:-3], np.zeros(10, dtype=np.uint8)):
        with pytest.raises(
            RunFailedError, match="the agent that was carried over cannot be resumed"
        ):
            carry_over(damaged, CATCH(TaskSpec(game="catch", seed=0)), theta0)
    with pytest.raises(RunFailedError, match="cannot be resumed"):
        carry_over(agent, wider(TaskSpec(game="catch", seed=0)), theta0)
