"""Leap around RLlib's PPO: a task that repeats itself, and a run of such tasks."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor

from leap_rl.cli import main
from leap_rl.envs.gymnasium_config import GymnasiumConfig
from leap_rl.learners.config import AgentConfig, RllibConfig
from leap_rl.learners.learner import Learner
from leap_rl.learners.registry import make_learner
from leap_rl.learners.task import TaskSpec
from leap_rl.meta import Leap
from leap_rl.meta.gradient_path import Point
from leap_rl.tasks.config import TaskConfig
from leap_rl.training.runtime.ray.environment import LOCAL, make_ray_runtime

ROOT = Path(__file__).parents[2]
GAME = "MinAtar/Breakout-v1"
RLLIB = RllibConfig(num_epochs=2, minibatch_size=32)
SPEC = TaskSpec(game=GAME, seed=5)


@pytest.fixture(autouse=True)
def _ray() -> None:
    make_ray_runtime(trainers=1, address=LOCAL)  # what Ray must find when it is imported


def make_tasks(
    *, reward_clip: float = np.inf, lr: float = 1e-3, game: str = GAME, **given: Any
) -> Learner:
    task = TaskConfig(
        kind="gymnasium",
        games=[game],
        agent_steps=192,
        num_envs=4,
        unroll_length=16,
        gymnasium=GymnasiumConfig(minatar="palette") if game == GAME else GymnasiumConfig(),
    )
    agent = AgentConfig(
        algorithm="rllib:PPO",
        encoder="minatar" if game == GAME else "mlp",
        lr=lr,
        reward_clip=reward_clip,
        rllib=RLLIB,
    )
    return make_learner(task=task, agent=agent, **given)


def learn(
    tasks: Learner, *, stop_after: int = 99, spec: TaskSpec = SPEC
) -> tuple[Any, list[Point], list[Any]]:
    """Learn a task; returns it, the points that were observed, and what each batch did."""
    task, points, progress = tasks(spec), [], []
    task.start(tasks.random_initialization(1))
    while not task.done and len(progress) < stop_after:
        progress.append(task.advance(points.append))
    return task, points, progress


def test_it_starts_from_the_initialization_and_observes_every_update() -> None:
    tasks = make_tasks()
    theta0 = tasks.random_initialization(1)
    task, points, progress = learn(tasks)
    assert torch.equal(points[0].theta, theta0)
    assert theta0.shape == (tasks.shared_layout().size,)
    assert len(points) == progress[-1].updates > 2 * len(progress)
    moves = [not torch.equal(a.theta, b.theta) for a, b in pairwise(points)]
    assert all(moves)
    end = task.end_point(with_grad=True)
    views = tasks.shared_layout().named(end.theta)
    for name, part in task.named_parameters().items():
        if name.startswith("encoder."):
            assert torch.equal(part, views[name.removeprefix("encoder.")])
    for name, part in task._runner.module.state_dict().items():  # acts by the newest parameters
        assert torch.equal(part, task.named_parameters()[name])
    task.close()


def test_what_is_observed_is_the_loss_and_its_gradient() -> None:
    """Adam's first step goes by the learning rate against the gradient's sign."""
    _, points, _ = learn(make_tasks(), stop_after=1)
    step, grad = points[1].theta - points[0].theta, points[0].grad
    assert grad is not None
    clear = grad.abs() > 1e-4
    assert clear.sum() > 1000
    torch.testing.assert_close(step[clear], -1e-3 * grad[clear].sign(), atol=2e-6, rtol=0.0)


@pytest.mark.parametrize("loss_difference", ["next_batch", "same_batch"])
def test_a_task_is_a_function_of_its_seed(loss_difference: str) -> None:
    tasks = make_tasks(loss_difference=loss_difference)
    sums, others = [], []
    for _ in range(2):
        task, points, progress = learn(tasks)
        path = Leap(metric="optimizer", task_unit=True).start(points[0].theta)
        for point in points:
            path.visit(point)
        path.end(task.end_point(with_grad=False))
        sums.append(path.gradient())
        others.append(progress)
        task.close()
    assert torch.equal(*sums)
    assert others[0] == others[1]
    known = [point.previous_batch_loss is not None for point in points[1:]]
    assert all(known) if loss_difference == "same_batch" else not any(known)


def test_the_loss_after_an_update_changes_no_update() -> None:
    # So fast that PPO changes its weight of the KL divergence, which it takes from the metrics.
    one, other = (make_tasks(loss_difference=d, lr=0.01) for d in ("next_batch", "same_batch"))
    ends = [learn(one)[1], learn(other)[1]]
    for one, other in zip(*ends, strict=True):
        assert torch.equal(one.theta, other.theta)
        assert torch.equal(torch.as_tensor(one.loss), torch.as_tensor(other.loss))


def test_a_task_restored_from_a_snapshot_ends_with_the_same_bits() -> None:
    tasks = make_tasks()
    whole, points, progress = learn(tasks)
    half, _, _ = learn(tasks, stop_after=1)
    state = half.state()
    restored, again = tasks(SPEC), []
    restored.restore(state)
    made = []
    while not restored.done:
        made.append(restored.advance(again.append))
    assert made == progress[1:]
    assert torch.equal(again[-1].theta, points[-1].theta)
    np.testing.assert_equal(restored.state(), whole.state())
    state["parameters"][0] += 1
    with pytest.raises(ValueError, match="came to others when it was learned again"):
        tasks(SPEC).restore(state)


def test_episodes_and_rewards_are_those_that_were_played() -> None:
    clipped = make_tasks(reward_clip=0.5)  # for learning, never for reporting
    task, _, progress = learn(clipped)
    returns = [episode.episode_return for part in progress for episode in part.episodes]
    lengths = [episode.length for part in progress for episode in part.episodes]
    running = task._returns.values()
    assert len(returns) > 3
    assert sum(returns) > 0
    assert all(value == int(value) for value in returns)
    earned = sum(returns) + sum(r for r, _ in running)
    played = sum(lengths) + sum(length for _, length in running)
    assert 192 <= played < 192 + 3 * 4
    assert sum(part.rewards for part in progress) == pytest.approx(earned, rel=0.05)
    assert [part.agent_steps for part in progress] == [64, 128, 192]


def test_rewards_are_of_the_agent_steps_that_count() -> None:
    """RLlib plays more where episodes are short; here each agent step earns 1."""
    _, _, progress = learn(
        make_tasks(game="CartPole-v1"), spec=TaskSpec(game="CartPole-v1", seed=5)
    )
    assert [part.rewards for part in progress] == pytest.approx([64.0] * 3)


def test_mixed_games_are_dealt_over_rllibs_environments_too() -> None:
    games = ["CartPole-v1", "leap_rl/CartPole-v1@length=1.0", "leap_rl/CartPole-v1@gravity=20.0"]
    task = TaskConfig(
        kind="gymnasium",
        games=games,
        mix_games=True,
        agent_steps=128,
        num_envs=4,
        unroll_length=16,
    )
    agent = AgentConfig(algorithm="rllib:PPO", encoder="mlp", rllib=RLLIB)
    tasks, ends = make_learner(task=task, agent=agent), []
    for _ in range(2):
        learned, points, _ = learn(tasks, spec=TaskSpec(game="mixed", seed=5))
        played = [env.unwrapped._envs._parts[0].game for env in learned._runner.env.unwrapped.envs]
        assert played == [0, 1, 2, 0]
        ends.append(points[-1].theta)
        learned.close()
    assert torch.equal(*ends)


def run(folder: Path, *words: str) -> Tensor:
    """Meta-train by PPO for two small meta-steps; returns the initialization."""
    config = ["--config", "minatar_ppo", "--task.games", f'["{GAME}"]']
    small = {
        "--task.agent_steps": 128,
        "--task.num_envs": 4,
        "--task.unroll_length": 16,
        "--agent.rllib.minibatch_size": 32,
        "--agent.rllib.num_epochs": 2,
        "--meta.batch_size": 1,
        "--meta.meta_steps": 2,
    }
    options = [str(word) for pair in small.items() for word in pair]
    assert main(["train", *config, *options, *words, "--run_dir", str(folder)]) == 0
    arrays = load_file(folder / "checkpoints/000002/initialization.safetensors")
    return torch.cat([part.ravel() for part in arrays.values()])


def test_a_run_meta_trains_ppo_without_ray(tmp_path: Path) -> None:
    import ray

    first = run(tmp_path / "one", "--runtime.kind", "local")
    assert not ray.is_initialized()
    assert torch.isfinite(first).all()


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (["--agent.share", "convolutions"], "agent.share = convolutions: has no effect"),
        (["--runtime.env_processes", "2"], "runtime.env_processes = 2: has no effect"),
        (["--agent.rllib.minibatch_size", "4096"], "must be at most task.num_envs"),
        (["--agent.rllib.clip", "0"], "agent.rllib.clip = 0.0: must be greater than 0"),
        (["--meta.method", "pretraining"], "agent.algorithm = rllib:PPO cannot be carried over"),
    ],
)
def test_what_cannot_be_meant_is_refused(
    words: list[str], complaint: str, capsys: pytest.CaptureFixture[str]
) -> None:
    config = ["--config", "minatar_ppo"]
    assert main(["train", *config, *words]) == 2
    assert complaint in capsys.readouterr().err


@pytest.mark.slow
def test_ray_and_the_local_runtime_come_to_the_same_bits(tmp_path: Path) -> None:
    local = run(tmp_path / "local", "--runtime.kind", "local")
    over_ray = run(tmp_path / "ray", "--runtime.kind", "ray", "--runtime.trainers", "1")
    assert torch.equal(local, over_ray)
