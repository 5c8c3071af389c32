"""Observations that are vectors are standardised by what the agent has seen."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
import torch
from gymnasium.spaces import Box
from numpy.typing import NDArray

from leap_rl.cli import main
from leap_rl.envs.normalized import STATISTICS, NormalizedVector, RunningMoments, standardised
from leap_rl.learners.a2c.task import ActorCriticTask
from leap_rl.learners.task import TaskSpec
from leap_rl.runs.config import LearnConfig
from leap_rl.runs.creation import resolve
from leap_rl.runs.kinds import make_tasks
from leap_rl.sharing.card import CARD
from leap_rl.sharing.initialization import load_tensors
from tests.envs.own_games import WALK
from tests.envs.vectors import make_gymnasium

FAR = f"{__name__}:Far-v0"
ON = {"agent.normalize_observations": True}


class Far(gymnasium.ObservationWrapper[Any, Any, Any]):
    """CartPole in other units, counted from somewhere else."""

    def __init__(self) -> None:
        super().__init__(gymnasium.make("CartPole-v1"))
        self.observation_space = Box(-np.inf, np.inf, (4,), np.float32)

    def observation(self, observation: NDArray[np.float32]) -> NDArray[np.float32]:
        return observation * np.float32(1000.0) + np.float32(5000.0)


gymnasium.register("Far-v0", entry_point=lambda: Far(), max_episode_steps=500)


def literal(observation: Any, seen: NDArray[np.float64]) -> NDArray[np.float32]:
    scaled = (observation - seen.mean(0)) / np.sqrt(seen.var(0) + 1e-8)
    return np.clip(scaled, -10.0, 10.0).astype(np.float32)


def test_each_step_is_standardised_by_all_observations_up_to_it() -> None:
    game = f"{WALK}@truncates=7"
    raw, games = (make_gymnasium(game, num_envs=3, seed=7, shape=(4,)) for _ in range(2))
    normalized = NormalizedVector(games)
    shown, given = normalized.reset(), raw.reset()
    seen = given.astype(np.float64)
    np.testing.assert_allclose(shown, literal(given, seen), rtol=1e-6)
    cut_off = 0
    for _ in range(30):
        actions = np.zeros(3, dtype=np.int64)
        step, plain = normalized.step(actions), raw.step(actions)
        seen = np.concatenate([seen, plain.observations])
        assert step.observations.dtype == np.float32
        np.testing.assert_allclose(step.observations, literal(plain.observations, seen), rtol=1e-5)
        assert step.last_observations.keys() == plain.last_observations.keys()
        for index, last in plain.last_observations.items():
            np.testing.assert_allclose(
                step.last_observations[index], literal(last, seen), rtol=1e-5
            )
            cut_off += 1
        np.testing.assert_array_equal(step.rewards, plain.rewards)
    assert cut_off == 3 * 4
    moments = normalized.moments
    assert moments.count == len(seen) == 3 * 31
    np.testing.assert_allclose(moments.mean, seen.mean(0), rtol=1e-12)
    np.testing.assert_allclose(moments.variance, seen.var(0), rtol=1e-12)


def test_moments_stay_exact_far_from_zero() -> None:
    vectors = np.random.default_rng(0).normal(1e6, [1e-2, 1.0, 1e3], (10_000, 3))
    moments = RunningMoments(3)
    for part in np.array_split(vectors, 777):
        moments.add(part)
    np.testing.assert_allclose(moments.mean, vectors.mean(0), rtol=1e-14)
    np.testing.assert_allclose(moments.variance, vectors.var(0), rtol=1e-6)


def config(game: str, **options: Any) -> LearnConfig:
    given = {"task.games": [game], "task.agent_steps": 24_000, **ON, **options}
    return LearnConfig.from_yaml("gymnasium_cart_pole", given)


def task_of(made: LearnConfig, seed: int = 3) -> ActorCriticTask:
    tasks = make_tasks(made)
    task = tasks(TaskSpec(game=made.task.resolved_games[0], seed=seed))
    assert isinstance(task, ActorCriticTask)
    return task


def started(made: LearnConfig) -> ActorCriticTask:
    task = task_of(made)
    task.start(make_tasks(made).random_initialization(5))
    return task


def nothing(point: object) -> None:
    pass


def learn(task: ActorCriticTask, updates: int = 10**9) -> list[float]:
    """Learn on, and return the returns of the episodes that end in the last fifth."""
    ends = []
    for _ in range(updates):
        if task.done:
            break
        ends += task.advance(nothing).episodes
    return [end.episode_return for end in ends if end.agent_steps > 0.8 * task.agent_steps_total]


def same(one: ActorCriticTask, other: ActorCriticTask) -> bool:
    mine, theirs = one.named_parameters(), other.named_parameters()
    assert mine.keys() == theirs.keys()
    return all(torch.equal(mine[name], theirs[name]) for name in mine)


def test_a_restored_agent_comes_to_the_same_bits() -> None:
    made = config("Pendulum-v1", **{"task.agent_steps": 3_200})
    whole, first = started(made), started(made)
    learn(first, updates=15)
    state = first.state()
    again = task_of(made)
    again.restore(state)
    for task in (whole, first, again):
        learn(task)
    assert same(whole, first)
    assert same(whole, again)
    without = task_of(made)
    without.restore(state)
    assert isinstance(without.envs, NormalizedVector)
    without.envs.moments.mean += 0.1
    learn(without)
    assert not same(whole, without)  # it counts


def test_an_agent_that_is_carried_over_keeps_its_statistics() -> None:
    made = config("Pendulum-v1", **{"task.agent_steps": 3_200})
    first, second = started(made), task_of(made, seed=4)
    learn(first)
    second.carry_over(first.state(), first.learner.shared.clone())
    learn(second, updates=1)
    for task, counted in ((first, 16 + 3_200), (second, 16 + 3_200 + 80)):
        assert isinstance(task.envs, NormalizedVector)
        assert task.envs.moments.count == counted


def test_an_agent_learns_from_observations_in_any_unit() -> None:
    off, on = (
        np.mean(learn(started(config(FAR, **{"agent.normalize_observations": normalized}))))
        for normalized in (False, True)
    )
    assert on > 100 > 2 * off


def test_a_saved_agent_has_its_statistics(tmp_path: Path) -> None:
    run = tmp_path / "run"
    words = ["--config", "gymnasium_cart_pole", "--task.games", '["CartPole-v1"]']
    words += ["--task.agent_steps", "1600", "--agent.normalize_observations", "true"]
    words += ["--runtime.kind", "local", "--tracking.console", "quiet"]
    assert main(["learn", *words, "--run_dir", str(run)]) == 0
    (file,) = (run / "agents").iterdir()
    saved = load_tensors(file.read_bytes())
    mean, variance = (saved[name].numpy() for name in STATISTICS)
    assert mean.dtype == np.float64
    assert np.abs(mean).max() > 1e-3
    observations = np.random.default_rng(1).normal(0, 0.5, (200, 4)).astype(np.float32)
    scaled = np.clip((observations - mean) / np.sqrt(variance + 1e-8), -10, 10)
    np.testing.assert_allclose(standardised(observations, mean, variance), scaled, rtol=1e-6)


def test_an_exported_encoder_says_that_it_takes_normalized_observations(tmp_path: Path) -> None:
    words = ["--config", "gymnasium_classic_control", "--task.agent_steps", "160"]
    words += ["--meta.meta_steps", "1", "--meta.batch_size", "1", "--tracking.console", "quiet"]
    for normalized in ("true", "false"):
        run, out = tmp_path / normalized, tmp_path / f"{normalized}-shared"
        given = ["--agent.normalize_observations", normalized, "--run_dir", str(run)]
        assert main(["train", *words, "--runtime.kind", "local", *given]) == 0
        assert main(["export", str(run), "--out", str(out)]) == 0
        said = " ".join((out / CARD).read_text().split())
        assert ("takes observations that are normalised" in said) == (normalized == "true")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            {"task.kind": "catch", "task.games": ["catch"]},
            r"agent\.normalize_observations = true: is for observations that are vectors, and "
            r"those of task\.kind = catch are images of \[\d+, \d+, \d\].*leave it out",
        ),
        (
            {"agent.algorithm": "rllib:PPO"},
            r"normalize_observations = True: has no effect with agent\.algorithm = rllib:PPO",
        ),
    ],
)
def test_what_is_not_normalized_is_said(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        resolve(LearnConfig.from_yaml("gymnasium_cart_pole", {**ON, **options}))


def test_nothing_is_counted_where_it_is_off() -> None:
    task = task_of(config(FAR, **{"agent.normalize_observations": False}))
    assert not isinstance(task.envs, NormalizedVector)
    assert not set(STATISTICS) & task.named_parameters().keys()
