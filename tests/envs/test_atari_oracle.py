"""Against ale-py's own vector environment, wherever its rules are ours: an episode's first steps.

What differs, and is left out: later episodes (ALE's reset carries memory over), no-ops (other
draws), FIRE at the start, and what is seen in the very step in which a game ends.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from ale_py.vector_env import AtariVectorEnv
from gymnasium.vector import AutoresetMode
from numpy.typing import NDArray

from leap_rl.envs.atari.envs import AtariEnvs
from leap_rl.envs.atari.settings import AtariSettings


class Oracle(AtariVectorEnv):
    """ale-py's, which writes its autoreset mode into the class's dict: here, one of its own."""

    metadata: dict[str, Any] = {}  # noqa: RUF012


def oracle_of(game: str, settings: AtariSettings) -> Oracle:
    return Oracle(
        game,
        1,
        num_threads=1,
        max_num_frames_per_episode=10**8,
        repeat_action_probability=0.0,
        full_action_space=False,
        autoreset_mode=AutoresetMode.SAME_STEP,
        img_height=84,
        img_width=84,
        grayscale=settings.grayscale,
        stack_num=settings.frame_stack,
        frameskip=settings.frameskip,
        maxpool=settings.frameskip > 1,
        noop_max=1,  # draws fewer
        life_loss_info=False,
        episodic_life=False,
        reward_clipping=False,
        use_fire_reset=False,
    )


def channels_last(observation: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """Bring [stack, 84, 84(, 3)] into our order."""
    frames = observation.reshape(len(observation), 84, 84, -1)
    return np.concatenate(list(frames), axis=-1)


def compare(game: str, settings: AtariSettings, agent_steps: int) -> tuple[int, float, bool]:
    """Play the same actions; steps compared, rewards seen, and whether the game ended."""
    ours = AtariEnvs(game, num_envs=1, settings=settings)
    theirs = oracle_of(game, settings)
    first, _ = ours.reset(seed=0)
    expected, _ = theirs.reset(seed=0)
    newest = settings.channels
    shown = channels_last(expected[0])[..., -newest:].astype(int)
    assert np.abs(first[0][..., -newest:] - shown).max() <= 1
    rng = np.random.default_rng(0)
    total = 0.0
    for count in range(1, agent_steps + 1):
        actions = rng.integers(ours.single_action_space.n, size=1)
        observations, rewards, terminated, *_ = ours.step(actions)
        expected, their_rewards, their_terminated, *_ = theirs.step(actions)
        assert rewards.tolist() == their_rewards.tolist()
        assert terminated.tolist() == their_terminated.tolist()
        total += abs(float(rewards[0]))
        if terminated[0]:
            return count, total, True
        if count >= settings.frame_stack:  # until then theirs shows black frames
            difference = observations[0].astype(int) - channels_last(expected[0])
            assert np.abs(difference).max() <= 1
    return agent_steps, total, False


@pytest.mark.parametrize("game", ["pong", "qbert", "carnival"])
def test_a_first_episode_is_ale_pys_step_by_step(game: str) -> None:
    steps, total, ended = compare(game, AtariSettings(noop_max=0), 150)
    assert steps > 100
    assert total > 0
    assert ended or steps == 150


@pytest.mark.parametrize(
    "settings",
    [
        AtariSettings(noop_max=0, grayscale=True, frame_stack=4),
        AtariSettings(noop_max=0, frame_stack=2, frameskip=3),
        AtariSettings(noop_max=0, frameskip=1, grayscale=True),
    ],
)
def test_the_settings_mean_what_they_mean_in_ale_py(settings: AtariSettings) -> None:
    assert compare("space_invaders", settings, 60)[0] == 60
