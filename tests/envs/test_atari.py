"""The real emulator, against ALE stepped by hand and against itself."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import ale_py
import numpy as np
import pytest
from ale_py import roms
from gymnasium.vector import VectorEnv
from numpy.typing import NDArray

from leap_rl.envs.atari import AtariSettings, _AtariEnvs, _int32_seeds, make_atari
from leap_rl.envs.episodes import Episode, EpisodeAccounting
from leap_rl.envs.vector import GameVector, VectorStep


def play(
    games: GameVector, agent_steps: int, *, seed: int = 0
) -> tuple[NDArray[np.uint8], list[VectorStep]]:
    """Play with random actions; environment i's do not depend on B."""
    generators = [np.random.default_rng((seed, index)) for index in range(games.num_envs)]
    first = games.reset()
    steps = [
        games.step(np.array([rng.integers(games.num_actions) for rng in generators]))
        for _ in range(agent_steps)
    ]
    return first, steps


def equal(first: VectorStep, second: VectorStep) -> bool:
    return (
        np.array_equal(first.observations, second.observations)
        and np.array_equal(first.rewards, second.rewards)
        and np.array_equal(first.terminated, second.terminated)
        and np.array_equal(first.truncated, second.truncated)
        and first.last_observations.keys() == second.last_observations.keys()
        and all(
            np.array_equal(observation, second.last_observations[index])
            for index, observation in first.last_observations.items()
        )
    )


SHORT = AtariSettings(max_frames=80)


def test_an_agent_sees_rgb_images_and_the_minimal_actions() -> None:
    games = make_atari("breakout", num_envs=2, seed=0)
    observations = games.reset()
    assert observations.shape == (2, 84, 84, 3)
    assert observations.dtype == np.uint8
    assert observations.flags.c_contiguous
    assert games.observation_shape == (84, 84, 3)
    assert games.num_actions == 4
    assert np.ptp(observations.astype(int), axis=-1).max() > 100  # in color


def test_the_same_seed_gives_the_same_bits_whatever_the_threads() -> None:
    # Over truncations, and so over resets by hand.
    runs = [
        play(make_atari("breakout", num_envs=2, seed=1, settings=SHORT, threads=threads), 50)
        for threads in (1, 2)
    ]
    (first, steps), (first_again, steps_again) = runs
    assert np.array_equal(first, first_again)
    assert all(map(equal, steps, steps_again))
    assert sum(step.truncated.sum() for step in steps) == 4


def test_another_seed_gives_other_games() -> None:
    _, steps = play(make_atari("breakout", num_envs=1, seed=1), 20)
    _, others = play(make_atari("breakout", num_envs=1, seed=2), 20)
    assert not all(map(equal, steps, others))


def test_an_environment_does_not_depend_on_how_many_there_are() -> None:
    _, steps = play(make_atari("space_invaders", num_envs=1, seed=3), 20)
    _, more = play(make_atari("space_invaders", num_envs=2, seed=3), 20)
    for step, wider in zip(steps, more, strict=True):
        assert np.array_equal(step.observations[0], wider.observations[0])


def test_a_seed_of_63_bits_is_taken() -> None:
    seeds = _int32_seeds(2**63 - 1, 64)
    assert len(set(seeds.tolist())) == 64
    assert seeds.min() >= 0
    assert seeds.max() < 2**31
    make_atari("pong", num_envs=2, seed=2**63 - 1).reset()


def reference_screens(
    game: str, actions: list[int], *, seed: int, noops: int
) -> list[NDArray[np.uint8]]:
    """Step a bare emulator by hand: RGB [210, 160, 3] after each agent step, two frames pooled."""
    ale = ale_py.ALEInterface()
    ale.setFloat("repeat_action_probability", 0.0)
    ale.setInt("random_seed", seed)
    ale.loadROM(roms.get_rom_path(game))
    ale.reset_game()
    for _ in range(noops):
        ale.act(ale_py.Action.NOOP)
    minimal = ale.getMinimalActionSet()
    screens = []
    for action in actions:
        frames = []
        for _ in range(4):
            ale.act(minimal[action])
            frames.append(ale.getScreenRGB())
        screens.append(np.maximum(frames[2], frames[3]))
    return screens


def downsampled(screen: NDArray[np.uint8]) -> NDArray[np.float64]:
    """Average over areas, exactly: [210, 160, 3] to [84, 84, 3]."""

    def weights(source: int) -> NDArray[np.float64]:
        fine = np.kron(np.eye(84), np.full(source, 1 / source))  # [84, 84·source]
        return fine.reshape(84, source, 84).sum(axis=2)

    rows = np.tensordot(weights(210), screen.astype(float), axes=1)  # [84, 160, 3]
    return np.einsum("iwc,jw->ijc", rows, weights(160))


def test_observations_are_those_of_a_bare_emulator_up_to_and_at_the_cap() -> None:
    # The last observation of a truncated episode included, where ale_py's own would be wrong.
    actions = np.random.default_rng(0).integers(4, size=40).tolist()
    settings = AtariSettings(noop_max=0, max_frames=160)
    games = make_atari("breakout", num_envs=1, seed=5, settings=settings)
    games.reset()
    screens = reference_screens("breakout", actions, seed=int(_int32_seeds(5, 1)[0]), noops=0)
    for count, (action, screen) in enumerate(zip(actions, screens, strict=True), start=1):
        step = games.step(np.array([action]))
        assert step.truncated.tolist() == [count == 40]
        seen = step.last_observations[0] if count == 40 else step.observations[0]
        assert np.abs(seen - downsampled(screen)).max() <= 0.51  # rounding


def test_episodes_are_cut_at_the_frame_cap_and_go_on() -> None:
    games = make_atari("breakout", num_envs=2, seed=0, settings=SHORT)
    accounting = EpisodeAccounting(2)
    _, steps = play(games, 60)
    episodes: list[Episode] = []
    for count, step in enumerate(steps, start=1):
        episodes += accounting.record(step, 2 * count)
        assert not step.terminated.any()
    assert [(e.environment, e.length, e.agent_steps) for e in episodes] == [
        (0, 20, 40),
        (1, 20, 40),
        (0, 20, 80),
        (1, 20, 80),
        (0, 20, 120),
        (1, 20, 120),
    ]


def test_the_cap_counts_anew_after_a_game_over() -> None:
    # FIRE alone loses Breakout's five balls one by one; no action at all never ends it.
    settings = AtariSettings(max_frames=1200)
    games = make_atari("breakout", num_envs=1, seed=0, settings=settings)
    games.reset()
    lengths = [0, 0]
    for episode, action in enumerate((1, 0)):
        ended = False
        while not ended:
            step = games.step(np.array([action]))
            lengths[episode] += 1
            ended = bool(step.terminated[0] or step.truncated[0])
        assert step.terminated.tolist() == [action == 1]
        assert (not step.last_observations) == (action == 1)
    assert 100 < lengths[0] < 300
    assert lengths[1] == 300


def test_losing_a_life_ends_nothing() -> None:
    # Breakout has five lives; no FIRE is pressed for the agent, and without one no ball is lost.
    games = make_atari("breakout", num_envs=1, seed=0)
    games.reset()
    envs = games._envs
    assert isinstance(envs, _AtariEnvs)
    lives: list[int] = []
    ended = []
    step_of_ale = envs._ale_envs.step

    def spy(actions: NDArray[np.int64]) -> Any:
        lives.append(int((result := step_of_ale(actions))[4]["lives"][0]))
        return result

    envs._ale_envs.step = spy
    for _ in range(60):
        games.step(np.array([0]))
    assert set(lives) == {5}
    while min(lives) == 5:
        ended.append(games.step(np.array([1])).terminated[0])
    assert min(lives) == 4
    assert not any(ended)


def test_rewards_are_the_games_own() -> None:
    _, steps = play(make_atari("space_invaders", num_envs=1, seed=0), 250)
    rewards = np.concatenate([step.rewards for step in steps])
    assert {0.0, 5.0, 10.0} <= set(rewards.tolist())


def test_up_to_noop_max_no_ops_start_an_episode() -> None:
    def noops(noop_max: int, num_envs: int) -> set[int]:
        settings = AtariSettings(noop_max=noop_max)
        envs = _AtariEnvs("pong", num_envs=num_envs, settings=settings, threads=1)
        seeds = _int32_seeds(0, num_envs)
        frames: NDArray[np.int32] = envs._ale_envs.reset(seed=seeds)[1]["episode_frame_number"]
        return set(frames.tolist())

    assert noops(0, num_envs=1) == {0}
    assert noops(1, num_envs=4) == {0, 1}


def test_sticky_actions_change_the_game() -> None:
    def observations(sticky: float) -> list[NDArray[np.uint8]]:
        settings = AtariSettings(noop_max=0, sticky=sticky)
        _, steps = play(make_atari("breakout", num_envs=1, seed=0, settings=settings), 30)
        return [step.observations for step in steps]

    assert not np.array_equal(observations(0.0), observations(0.25))


def test_observations_are_safe_to_keep() -> None:
    games = make_atari("breakout", num_envs=2, seed=0, settings=SHORT)
    kept = [games.reset()]
    copies = [kept[0].copy()]
    for count in range(50):
        step = games.step(np.array([count % 4, 1]))
        kept += [step.observations, *step.last_observations.values()]
        copies += [step.observations.copy(), *(o.copy() for o in step.last_observations.values())]
    assert all(map(np.array_equal, kept, copies))


def test_making_atari_does_not_touch_other_environments() -> None:
    make_atari("pong", num_envs=1, seed=0)
    assert "autoreset_mode" not in VectorEnv.metadata


def test_close_stops_the_emulators_threads() -> None:
    def threads() -> int:
        return len(list(Path("/proc/self/task").iterdir()))

    before = threads()
    games = make_atari("pong", num_envs=2, seed=0, threads=2)
    assert threads() > before
    games.close()
    assert threads() == before


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"frameskip": 0}, "atari.frameskip = 0"),
        ({"noop_max": -1}, "atari.noop_max = -1"),
        ({"sticky": 1.0}, "atari.sticky = 1.0"),
        ({"max_frames": 1002}, "atari.max_frames = 1002: must be a positive multiple"),
        ({"max_frames": 0}, "atari.max_frames = 0"),
    ],
)
def test_senseless_settings_are_refused(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        AtariSettings(**changes)


def test_an_unknown_game_and_no_threads_are_refused() -> None:
    with pytest.raises(ValueError, match="'pongg'"):
        make_atari("pongg", num_envs=1, seed=0)
    with pytest.raises(ValueError, match="threads = 0"):
        make_atari("pong", num_envs=1, seed=0, threads=0)
