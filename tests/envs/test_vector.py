"""`GameVector` and `EpisodeAccounting` over environments whose every number tells where it is from.

B environments. In the stub an observation is (environment, episode, agent steps into it), and a
reward is made of the same three, so any step that was left out, added or misplaced shows.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from gymnasium.spaces import Box
from numpy.typing import NDArray

from leap_rl.envs.vector import (
    EpisodeAccounting,
    EpisodeEnd,
    GameVector,
    RestorableEnvs,
    VectorStep,
    environment_seeds,
)

# How the episodes of each environment end: (agent steps, how), again and again.
Endings = list[tuple[int, str]]
ENDINGS: list[Endings] = [
    [(3, "terminated"), (1, "truncated"), (4, "terminated")],
    [(2, "truncated"), (2, "truncated")],
    [(6, "terminated"), (5, "both")],
    [(1, "terminated")],
]


def reward_of(environment: int, episode: int, position: int) -> float:
    return 1000.0 * environment + 10.0 * episode + position


class TellingEnv(RestorableEnvs):
    """Counts positions; hands out fresh arrays; final_obs is junk where no episode ended."""

    def __init__(self, endings: list[Endings]) -> None:
        super().__init__(len(endings), Box(0, 255, (3,), np.uint8), 2)
        self.endings = endings
        self.seed: int | None = None
        self.closed = False

    def _observe(self) -> NDArray[np.uint8]:
        rows = zip(range(self.num_envs), self.episodes, self.positions, strict=True)
        return np.array(list(rows), dtype=np.uint8)

    def reset(self, *, seed: Any = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        self.seed = seed
        self.episodes = [0] * self.num_envs
        self.positions = [0] * self.num_envs
        return self._observe(), {}

    def step(self, actions: Any) -> Any:
        rewards = np.zeros(self.num_envs)
        terminated = np.zeros(self.num_envs, dtype=bool)
        truncated = np.zeros(self.num_envs, dtype=bool)
        for env in range(self.num_envs):
            self.positions[env] += 1
            rewards[env] = reward_of(env, self.episodes[env], self.positions[env])
            length, how = self.endings[env][self.episodes[env] % len(self.endings[env])]
            if self.positions[env] == length:
                terminated[env] = how in ("terminated", "both")
                truncated[env] = how in ("truncated", "both")
        ended = terminated | truncated
        final = np.where(ended[:, None], self._observe(), 255).astype(np.uint8)
        for env in np.flatnonzero(ended):
            self.episodes[env] += 1
            self.positions[env] = 0
        info = {"final_obs": final, "_final_obs": ended} if ended.any() else {}
        return self._observe(), rewards, terminated, truncated, info


def play(endings: list[Endings], steps: int) -> tuple[list[VectorStep], list[EpisodeEnd]]:
    games = GameVector(TellingEnv(endings), seed=0)
    accounting = EpisodeAccounting(games.num_envs)
    games.reset()
    taken, episodes = [], []
    for count in range(1, steps + 1):
        taken.append(games.step(np.zeros(games.num_envs, dtype=np.int64)))
        episodes += accounting.record(taken[-1], count * games.num_envs)
    return taken, episodes


def expected_episodes(endings: list[Endings], steps: int) -> list[EpisodeEnd]:
    """What must come out, computed from the endings alone."""
    episodes = []
    for env, ending in enumerate(endings):
        start, number = 0, 0
        while (end := start + ending[number % len(ending)][0]) <= steps:
            length = end - start
            total = sum(reward_of(env, number, position) for position in range(1, length + 1))
            episodes.append(
                EpisodeEnd(agent_steps=end * len(endings), episode_return=total, length=length)
            )
            start, number = end, number + 1
    return sorted(episodes, key=lambda episode: episode.agent_steps)  # then by environment


def test_returns_and_lengths_are_those_of_the_episodes_played() -> None:
    _, episodes = play(ENDINGS, 40)
    assert episodes == expected_episodes(ENDINGS, 40)
    assert len(episodes) == 15 + 20 + 7 + 40


def test_after_an_end_comes_the_new_episodes_first_observation() -> None:
    steps, _ = play(ENDINGS, 40)
    for step in steps:
        ended = step.terminated | step.truncated
        assert (step.observations[ended, 2] == 0).all()
        assert (step.observations[~ended, 2] > 0).all()
        assert (step.observations[:, 0] == range(len(ENDINGS))).all()


def test_last_observations_are_the_true_last_ones_of_truncated_episodes() -> None:
    steps, _ = play(ENDINGS, 6)
    found = [
        {index: observation.tolist() for index, observation in step.last_observations.items()}
        for step in steps
    ]
    # (environment, episode, position); environment 2's first episode terminates at 6.
    assert found == [
        {},
        {1: [1, 0, 2]},
        {},
        {0: [0, 1, 1], 1: [1, 1, 2]},
        {},
        {1: [1, 2, 2]},
    ]
    for step in steps:
        assert sorted(step.last_observations) == np.flatnonzero(step.truncated).tolist()


def test_last_observations_are_copies() -> None:
    games = GameVector(TellingEnv(ENDINGS), seed=0)
    games.reset()
    kept: list[Any] = []
    step_of_env = games._envs.step
    games._envs.step = lambda actions: kept.append(step_of_env(actions)) or kept[-1]  # type: ignore[method-assign]
    games.step(np.zeros(4, dtype=np.int64))
    step = games.step(np.zeros(4, dtype=np.int64))
    kept[-1][4]["final_obs"][:] = 99
    assert step.last_observations[1].tolist() == [1, 0, 2]


def test_terminated_and_truncated_at_once_is_terminated() -> None:
    steps, episodes = play([[(2, "both")]], 2)
    assert steps[1].terminated.tolist() == [True]
    assert steps[1].truncated.tolist() == [False]
    assert steps[1].last_observations == {}
    assert len(episodes) == 1


def test_the_seed_goes_to_the_environments_and_close_closes_them() -> None:
    envs = TellingEnv(ENDINGS)
    games = GameVector(envs, seed=7)
    games.reset()
    assert envs.seed == 7
    games.close()
    assert envs.closed


@pytest.mark.parametrize("action", [-1, 2])
def test_an_action_that_the_game_lacks_is_refused(action: int) -> None:
    games = GameVector(TellingEnv(ENDINGS), seed=0)
    games.reset()
    with pytest.raises(ValueError, match=r"must lie in 0\.\.1"):
        games.step(np.array([0, action, 0, 0]))


def test_sums_are_exact_where_float32_would_not_be() -> None:
    accounting = EpisodeAccounting(1)

    def step(reward: float, *, terminated: bool) -> VectorStep:
        return VectorStep(
            observations=np.zeros((1, 1), dtype=np.uint8),
            rewards=np.array([reward], dtype=np.float32),
            terminated=np.array([terminated]),
            truncated=np.array([False]),
            last_observations={},
            life_lost=np.array([False]),
        )

    accounting.record(step(2.0**24, terminated=False), 1)
    accounting.record(step(1.0, terminated=False), 2)
    assert accounting.returns.tolist() == [2.0**24 + 1]
    assert accounting.lengths.tolist() == [2]
    (episode,) = accounting.record(step(1.0, terminated=True), 3)
    assert episode.episode_return == 2.0**24 + 2
    assert accounting.returns.tolist() == [0.0]


def test_an_environments_seed_depends_on_seed_and_index_alone() -> None:
    def words(seed: int, num_envs: int) -> list[list[int]]:
        return [s.generate_state(4).tolist() for s in environment_seeds(seed, num_envs)]

    assert words(5, 2) == words(5, 8)[:2]
    # No diagonal: environment 1 of one seed is not environment 0 of the next.
    everyone = [tuple(word) for seed in range(8) for word in words(seed, 8)]
    assert len(set(everyone)) == 64
