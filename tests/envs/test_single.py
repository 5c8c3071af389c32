"""One environment in Gymnasium's interface plays what environment 0 of our vectors plays."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env

from leap_rl.envs.atari.settings import PRESETS
from leap_rl.envs.single import GameEnv
from leap_rl.envs.vector import GameVector
from tests.envs.vectors import make_atari, make_gymnasium

SEED = 5
MINATAR = "MinAtar/Breakout-v1"


def vector_of(game: str, given: dict[str, Any]) -> GameVector:
    """Three environments as our agent plays them."""
    if "atari" in given:
        return make_atari(game, num_envs=3, seed=SEED, settings=PRESETS[given["atari"]])
    shape = given.pop("shape")
    return make_gymnasium(game, num_envs=3, seed=SEED, shape=shape, **given)


@pytest.mark.parametrize(
    ("game", "given", "agent_steps"),
    [
        ("breakout", {"atari": "paper"}, 250),
        ("breakout", {"atari": "noframeskip"}, 250),
        ("pong@mode=1", {"atari": "machado"}, 60),
        (MINATAR, {"palette": True, "shape": (10, 10, 3)}, 200),
        (MINATAR, {"shape": (10, 10, 4)}, 200),
        ("CartPole-v1", {"shape": (4,)}, 200),
        ("CartPole-v1@max_episode_steps=7", {"shape": (4,)}, 60),
        ("FrozenLake-v1", {"shape": (16,)}, 60),
    ],
)
def test_it_plays_what_our_agent_plays(game: str, given: dict[str, Any], agent_steps: int) -> None:
    one = GameEnv(game, **{name: value for name, value in given.items() if name != "shape"})
    envs = vector_of(game, dict(given))
    # Bytes are scaled for libraries that scale images alone.
    unit = np.float32(255) if game.startswith("Frozen") else 1
    theirs = envs.reset()
    ours, _ = one.reset(seed=SEED)
    np.testing.assert_array_equal(ours, theirs[0] / unit)
    actions, ends = np.random.default_rng(0), 0
    for _ in range(agent_steps):
        taken = actions.integers(envs.num_actions, size=3)
        step = envs.step(taken)
        ours, reward, terminated, truncated, about = one.step(taken[0])
        assert one.observation_space.contains(ours)
        assert reward == step.rewards[0]
        assert terminated == (step.terminated | step.life_lost)[0]
        assert truncated == step.truncated[0]
        assert about == {"raw_reward": reward, "life_lost": step.life_lost[0]}
        if truncated:
            np.testing.assert_array_equal(ours, step.last_observations[0] / unit)
        if terminated or truncated:
            ends += 1
            ours, _ = one.reset()
        np.testing.assert_array_equal(ours, step.observations[0] / unit)
    # The claim is of little worth where no episode ended; mode 1 of Pong lasts longer.
    assert ends > 0 or "pong" in game


@pytest.mark.parametrize(
    ("game", "given"), [("pong", {}), (MINATAR, {"palette": True}), ("CartPole-v1", {})]
)
def test_it_is_an_environment_as_gymnasium_wants_it(game: str, given: dict[str, Any]) -> None:
    check_env(GameEnv(game, **given), skip_render_check=True)


def test_a_reset_in_the_middle_of_an_episode_starts_another() -> None:
    one = GameEnv(MINATAR, palette=True)
    one.reset(seed=SEED)
    for _ in range(4):
        one.step(np.int64(0))
    again, _ = one.reset(seed=SEED)
    fresh, _ = GameEnv(MINATAR, palette=True).reset(seed=SEED)
    np.testing.assert_array_equal(again, fresh)


def test_rewards_are_clipped_where_asked_for() -> None:
    rewards = {}
    for clip in (np.inf, 1.0):
        one = GameEnv("ms_pacman", reward_clip=clip)
        one.reset(seed=SEED)
        rewards[clip] = [one.step(np.int64(index % 9))[1] for index in range(120)]
    assert max(rewards[np.inf]) == 10.0
    assert rewards[1.0] == [min(reward, 1.0) for reward in rewards[np.inf]]


@pytest.mark.parametrize("game", ["UpNDown", "ALE/UpNDown-v5"])
def test_a_game_is_spelled_as_in_a_config(game: str) -> None:
    seen, _ = GameEnv(game, atari="machado").reset(seed=SEED)
    same, _ = GameEnv("up_n_down", atari="machado").reset(seed=SEED)
    assert np.array_equal(seen, same)


@pytest.mark.parametrize(
    ("game", "given", "complaint"),
    [
        ("breakout", {"atari": "openai"}, "atari = 'openai': must be one of paper, machado"),
        ("breakout", {"palette": True}, "palette: has no effect on the game 'breakout'"),
        (MINATAR, {"atari": "machado"}, "atari: has no effect on the game 'MinAtar/Breakout-v1'"),
        ("CartPole-v1", {"palette": True}, "palette: has no effect on the game 'CartPole-v1'"),
        (MINATAR, {"remake": True}, "remake: has no effect on the game 'MinAtar/Breakout-v1'"),
        (MINATAR, {"reward_clip": 0.0}, "reward_clip = 0.0: must be greater than 0"),
        ("MinAtar/Chess-v1", {}, "task.games: 'MinAtar/Chess-v1'"),
    ],
)
def test_what_cannot_be_meant_is_refused(game: str, given: dict[str, Any], complaint: str) -> None:
    with pytest.raises(ValueError, match=complaint.replace("(", r"\(")):
        GameEnv(game, **given)


def test_an_action_that_the_game_does_not_have_is_refused() -> None:
    one = GameEnv("pong")
    one.reset(seed=SEED)
    with pytest.raises(ValueError, match="action = -1"):
        one.step(np.int64(-1))


def test_actions_of_another_precision_are_taken_and_those_beyond_the_bounds_are_not() -> None:
    one = GameEnv("Pendulum-v1")
    one.reset(seed=SEED)
    one.step(np.array([0.3]))  # float64
    with pytest.raises(ValueError, match=r"must lie in Box\(-1.0, 1.0"):
        one.step(np.array([1.5]))
