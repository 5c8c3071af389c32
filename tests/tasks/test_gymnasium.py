"""Agents in Gymnasium environments: what they are given, and that they learn."""

from __future__ import annotations

import math
import re
from dataclasses import replace
from typing import cast

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from leap_rl.envs.gymnasium_config import GymnasiumConfig
from leap_rl.envs.vector import VectorStep
from leap_rl.learners.a2c.task import ActorCriticTask
from leap_rl.learners.config import AgentConfig
from leap_rl.learners.defaults import DEFAULTS
from leap_rl.learners.registry import make_learner
from leap_rl.learners.task import EpisodeEnd, TaskSpec
from leap_rl.tasks.config import TaskConfig
from tests.envs.own_games import MODULE, WALK

UPDATES = 8


def config(*games: str, **options: object) -> TaskConfig:
    return TaskConfig(
        kind="gymnasium",
        games=list(games),
        agent_steps=4 * 5 * UPDATES,
        num_envs=4,
        unroll_length=5,
        gymnasium=GymnasiumConfig(**options),  # type: ignore[arg-type]
    )


def make(task: TaskConfig, *, seed: int = 0, **agent: object) -> ActorCriticTask:
    tasks = make_learner(task=task, agent=AgentConfig(**agent))  # type: ignore[arg-type]
    return cast(ActorCriticTask, tasks(TaskSpec(game=task.resolved_games[0], seed=seed)))


def started(task: TaskConfig, **agent: object) -> ActorCriticTask:
    tasks = make_learner(task=task, agent=AgentConfig(**agent))  # type: ignore[arg-type]
    one = make(task, **agent)
    one.start(tasks.random_initialization(1))
    return one


def observe(*_: object, **__: object) -> None:
    pass


ENDLESS = f"{WALK}@truncates=3"
GAMES = [
    ("leap_rl/CartPole-v1@length=1.0", {}),
    ("MinAtar/Breakout-v1", {"encoder": "minatar"}),
    (f"{WALK}@sees=pixels,terminates=7", {}),
    (ENDLESS, {}),
    (f"{WALK}@sees=numbers,terminates=4", {}),
    ("Pendulum-v1", {}),
]


def settle(task: TaskConfig) -> TaskConfig:
    return task.suite.resolve(task)


@pytest.mark.parametrize(("game", "agent"), GAMES)
@pytest.mark.parametrize("at", [0, 3])
def test_a_snapshot_at_any_update_is_restored_to_the_same_bits(
    game: str, agent: dict[str, str], at: int
) -> None:
    calm, stopped = started(config(game), **agent), started(config(game), **agent)
    for _ in range(at):
        stopped.advance(observe)
    again = make(config(game), **agent)
    again.restore(stopped.state())
    episodes: dict[str, list[EpisodeEnd]] = {"calm": [], "again": []}
    for name, task in (("calm", calm), ("again", again)):
        while not task.done:
            progress = task.advance(observe)
            if progress.updates > at:
                episodes[name] += progress.episodes
    assert episodes["calm"] == episodes["again"]
    theta, other = calm.end_point(with_grad=True), again.end_point(with_grad=True)
    assert torch.equal(theta.theta, other.theta)
    assert torch.equal(theta.loss, other.loss)
    assert theta.grad is not None
    assert torch.equal(theta.grad, cast(torch.Tensor, other.grad))
    assert not torch.equal(theta.theta, started(config(game), **agent).learner.shared)


def first_targets(game: str) -> tuple[ActorCriticTask, list[VectorStep], torch.Tensor]:
    """Three agent steps in each environment, and the targets [3, 4] of their values."""
    task = started(replace(config(game), unroll_length=3, agent_steps=12))
    steps: list[VectorStep] = []
    step = task.envs.step

    def watched(actions: NDArray[np.int64]) -> VectorStep:
        steps.append(step(actions))
        return steps[-1]

    task.envs.step = watched  # type: ignore[method-assign]
    _, batch, _, _ = task._unroll()
    return task, steps, batch.targets.returns


def test_a_cut_off_episode_is_bootstrapped_and_one_that_ended_is_not() -> None:
    _, over, ended = first_targets(f"{WALK}@terminates=3")
    task, cut, cut_off = first_targets(f"{WALK}@truncates=3")
    assert over[-1].terminated.all()
    assert cut[-1].truncated.all()
    torch.testing.assert_close(ended[-1], torch.from_numpy(over[-1].rewards), rtol=0, atol=0)
    last = np.stack([cut[-1].last_observations[index] for index in range(4)])
    values = task.learner.passes.forward(torch.from_numpy(last)).values
    assert values.abs().min() > 1e-3
    gamma = DEFAULTS["vectors"].gamma
    torch.testing.assert_close(cut_off[-1] - ended[-1], gamma * values)


def test_rewards_are_not_clipped_unless_asked_to() -> None:
    assert make(config(ENDLESS)).learner.config.reward_clip == math.inf
    assert make(config(ENDLESS), reward_clip=0.5).learner.config.reward_clip == 0.5


def test_vectors_take_the_mlp_unless_another_encoder_is_chosen() -> None:
    assert make(config(ENDLESS)).learner.config.encoder == "mlp"
    assert make(config(f"{WALK}@sees=pixels")).learner.config.encoder == "mnih2013"
    assert make(config("MinAtar/Breakout-v1")).learner.config.encoder == "minatar"
    with pytest.raises(ValueError, match=r"agent\.encoder = nature: takes images"):
        make(config(ENDLESS), encoder="nature")


def test_a_settled_config_names_its_shape_and_its_games_their_actions() -> None:
    task = config("MountainCar-v0", "Acrobot-v1", "CartPole-v1", pad="zeros")
    settled = settle(task)
    assert settled.gymnasium.observation_shape == [6]
    assert settle(settled) == settled
    tasks = make_learner(task=settled, agent=AgentConfig())
    counts = []
    for game in settled.resolved_games:
        one = cast(ActorCriticTask, tasks(TaskSpec(game=game, seed=0)))
        one.start(tasks.random_initialization(0))
        one.advance(observe)
        counts.append(one.envs.num_actions)
        assert one.learner.shared_size == tasks.shared_layout().size
    assert counts == [3, 3, 2]


def test_games_that_do_not_repeat_themselves_are_found_when_a_run_is_made() -> None:
    with pytest.raises(ValueError, match="does not repeat itself"):
        settle(config(f"{WALK}@wild=true"))
    with pytest.raises(ValueError, match=r"task\.gymnasium\.remake = true"):
        settle(config(f"{WALK}@leaks=true"))
    settle(config(f"{WALK}@leaks=true", remake=True))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"games": "all"}, "task.games = ['all']: task.kind = gymnasium has no pools"),
        ({"games": []}, "task.games = []: task.kind = gymnasium has no pools"),
        ({"games": ["A-v0@x=1.0", "A-v0@x=1.00"]}, "each once"),
        ({"games": ["A-v0@x"]}, "must be spelled NAME or NAME@key=value"),
        ({"data": "here"}, "task.data: has no effect with task.kind = gymnasium"),
    ],
)
def test_what_cannot_be_is_told(options: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=re.escape(message)):
        TaskConfig(kind="gymnasium", **options)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"pad": "ones"}, "task.gymnasium.pad = 'ones': must be one of refuse, zeros"),
        ({"minatar": "rgb"}, "task.gymnasium.minatar = 'rgb': must be one of channels, palette"),
        ({"observation_shape": [2, 2]}, "task.gymnasium.observation_shape = [2, 2]: must be"),
        ({"observation_shape": [0]}, "task.gymnasium.observation_shape = [0]"),
        ({"observation_shape": [2**12, 2**12, 3]}, "of at most 4194304 elements"),
    ],
)
def test_options_that_cannot_be_are_told(options: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=re.escape(message)):
        GymnasiumConfig(**options)  # type: ignore[arg-type]


def learned_return(
    seed: int, agent_steps: int, game: str = "CartPole-v1", lr: float = 0.003
) -> float:
    """The mean return of the episodes in the last fifth of the agent steps."""
    task = TaskConfig(
        kind="gymnasium",
        games=[game],
        agent_steps=agent_steps,
        num_envs=16,
        unroll_length=5,
    )
    agent = AgentConfig(
        initial_weights="he",
        lr=lr,
        rmsprop_eps=1e-5,
        entropy_coefficient=0.0,
        value_coefficient=0.02,
    )
    tasks = make_learner(task=task, agent=agent)
    one = cast(ActorCriticTask, tasks(TaskSpec(game=game, seed=seed)))
    one.start(tasks.random_initialization(seed))
    episodes = []
    while not one.done:
        episodes += one.advance(observe).episodes
    late = [e.episode_return for e in episodes if e.agent_steps > 0.8 * agent_steps]
    return float(np.mean(late))


def test_an_agent_learns_to_keep_the_pole_up_for_longer() -> None:
    """Random actions keep it up for 22 agent steps on average; 500 is the most there is."""
    assert learned_return(0, 16_000) > 50


def test_an_agent_learns_which_numbers_to_give() -> None:
    """Random numbers earn -18 in an episode, the means of a policy that has not learned -5."""
    assert learned_return(0, 24_000, f"{MODULE}:Aim-v0", lr=0.001) > -4
