"""The real emulator, against ALE stepped by hand and against itself."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import ale_py
import numpy as np
import pytest
from ale_py import roms
from numpy.typing import NDArray

from leap_rl.envs.atari.envs import AtariEnvs, RecordedAtari, frames_per_s
from leap_rl.envs.atari.settings import PRESETS, AtariSettings
from leap_rl.envs.vector import GameVector, VectorStep
from tests.envs.vectors import exact_resize, make_atari, play


def envs_of(games: GameVector) -> AtariEnvs:
    assert isinstance(games._envs, AtariEnvs)
    return games._envs


def reference_screens(game: str, actions: list[int]) -> list[NDArray[np.uint8]]:
    """Step a bare emulator by hand: RGB [210, 160, 3] after each agent step, two frames pooled."""
    ale = ale_py.ALEInterface()
    ale.setFloat("repeat_action_probability", 0.0)
    ale.loadROM(roms.get_rom_path(game))
    ale.reset_game()
    minimal = ale.getMinimalActionSet()
    screens = []
    for action in actions:
        frames = []
        for _ in range(4):
            ale.act(minimal[action])
            frames.append(ale.getScreenRGB())
        screens.append(np.maximum(frames[2], frames[3]))
    return screens


def test_observations_are_those_of_a_bare_emulator_up_to_and_at_the_cap() -> None:
    # The last observation of a truncated episode included.
    actions = np.random.default_rng(0).integers(4, size=40).tolist()
    settings = AtariSettings(noop_max=0, max_frames=160)
    games = make_atari("breakout", num_envs=1, seed=5, settings=settings)
    games.reset()
    screens = reference_screens("breakout", actions)
    for count, (action, screen) in enumerate(zip(actions, screens, strict=True), start=1):
        step = games.step(np.array([action]))
        assert step.truncated.tolist() == [count == 40]
        seen = step.last_observations[0] if count == 40 else step.observations[0]
        assert np.abs(seen - exact_resize(screen)).max() <= 0.51  # rounding


def test_the_cap_counts_from_zero_after_a_game_over() -> None:
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


def steps_until_a_life_is_lost(games: GameVector) -> list[VectorStep]:
    """Play Breakout by FIRE alone, which loses the ball, until the second of five lives is left."""
    games.reset()
    ale = envs_of(games)._emulators[0].ale
    steps = []
    while ale.lives() > 3:
        steps.append(games.step(np.array([1])))
        assert len(steps) < 300
    return steps


def test_losing_a_life_ends_nothing() -> None:
    steps = steps_until_a_life_is_lost(make_atari("breakout", num_envs=1, seed=0))
    assert not any(step.terminated[0] or step.truncated[0] or step.life_lost[0] for step in steps)


def test_lost_lives_are_told_where_learning_treats_them_as_ends() -> None:
    settings = AtariSettings(life_loss_ends=True)
    games = make_atari("breakout", num_envs=1, seed=0, settings=settings)
    steps = steps_until_a_life_is_lost(games)
    assert not any(step.terminated[0] for step in steps)
    lost = [int(step.life_lost[0]) for step in steps]
    assert (sum(lost), lost[-1]) == (2, 1)
    while not (step := games.step(np.array([1]))).terminated[0]:
        lost += [int(step.life_lost[0])]
    assert sum(lost) == 4
    assert not step.life_lost[0]  # the fifth is the game's end
    assert not games.step(np.array([1])).life_lost[0]  # and the next game's lives are no loss


def test_no_lives_left_before_the_game_is_over_are_no_lost_life() -> None:
    class Lives:
        """An emulator whose lives are told by the test."""

        def __init__(self, ale: Any) -> None:
            self._ale = ale
            self._told = iter([3, 2, 2, 1, 0])

        def __getattr__(self, name: str) -> Any:
            return getattr(self._ale, name)

        def lives(self) -> int:
            return next(self._told)

    settings = AtariSettings(life_loss_ends=True)
    games = make_atari("breakout", num_envs=1, seed=0, settings=settings)
    games.reset()
    emulator = envs_of(games)._emulators[0]
    emulator.ale = Lives(emulator.ale)  # type: ignore[assignment]
    lost = [bool(games.step(np.array([0])).life_lost[0]) for _ in range(5)]
    assert lost == [True, True, False, True, False]


def test_0_to_noop_max_no_ops_start_an_episode_all_alike_often() -> None:
    settings = AtariSettings(noop_max=3, max_frames=4)
    envs = envs_of(make_atari("pong", num_envs=1, seed=0, settings=settings))
    envs.reset(seed=0)
    frames = []
    for _ in range(200):
        frames.append(envs._emulators[0].ale.getEpisodeFrameNumber())
        envs.step(np.array([0]))  # truncates, and starts the next
    counts = np.bincount(frames)
    assert len(counts) == 4
    assert counts.min() > 50 - 4 * 6  # four standard deviations
    none = envs_of(make_atari("pong", num_envs=1, seed=0, settings=AtariSettings(noop_max=0)))
    none.reset(seed=0)
    assert none._emulators[0].ale.getEpisodeFrameNumber() == 0


def test_fire_is_pressed_at_the_start_and_is_no_agent_step() -> None:
    def lives_without_fire(settings: AtariSettings) -> int:
        games = make_atari("breakout", num_envs=1, seed=0, settings=settings)
        games.reset()
        for _ in range(60):
            games.step(np.array([0]))
        return int(envs_of(games)._emulators[0].ale.lives())

    assert lives_without_fire(AtariSettings()) == 5  # no ball is served
    assert lives_without_fire(AtariSettings(fire_reset=True)) == 4
    # Freeway has no FIRE, and begins all the same.
    settings = AtariSettings(fire_reset=True, noop_max=0)
    games = make_atari("freeway", num_envs=1, seed=0, settings=settings)
    games.reset()
    assert envs_of(games)._emulators[0].ale.getEpisodeFrameNumber() == 0


def test_a_stack_holds_the_newest_frame_last_and_starts_with_the_first_repeated() -> None:
    for grayscale, channels in ((True, 1), (False, 3)):
        single = AtariSettings(grayscale=grayscale, max_frames=80)
        stacked = AtariSettings(grayscale=grayscale, max_frames=80, frame_stack=4)
        games, games4 = (
            make_atari("pong", num_envs=1, seed=0, settings=one) for one in (single, stacked)
        )
        first, first4 = games.reset(), games4.reset()
        steps, steps4 = play(games, 30), play(games4, 30)
        assert first4.shape == (1, 84, 84, 4 * channels)
        frames = [first] * 4
        assert np.array_equal(first4, np.concatenate(frames, axis=-1))
        for step, step4 in zip(steps, steps4, strict=True):
            if step.truncated[0]:
                expected = [*frames[1:], step.last_observations[0][None]]
                assert np.array_equal(
                    step4.last_observations[0], np.concatenate(expected, axis=-1)[0]
                )
                frames = [step.observations] * 4
            else:
                frames = [*frames[1:], step.observations]
            assert np.array_equal(step4.observations, np.concatenate(frames, axis=-1))


def test_sticky_frames_repeat_the_last_pressed_action_a_quarter_of_the_time() -> None:
    settings = AtariSettings(sticky=0.25, noop_max=0)
    envs = envs_of(make_atari("breakout", num_envs=1, seed=0, settings=settings))
    envs.reset(seed=0)
    emulator = envs._emulators[0]
    pressed: list[int] = []
    press = emulator.press
    emulator.press = lambda action: pressed.append(action) or press(action)  # type: ignore[func-returns-value,method-assign]
    for count in range(400):
        envs.step(np.array([(0, 2)[count % 2]]))
    wanted = np.repeat(np.array(emulator.actions)[[0, 2] * 200], 4).reshape(400, 4)
    stuck = np.array(pressed).reshape(400, 4) != wanted
    # The action changes in each agent step, so one that sticks is seen until the first draw.
    assert abs(stuck[:, 0].mean() - 0.25) < 4 * (0.25 * 0.75 / 400) ** 0.5
    assert not stuck[:, 1][~stuck[:, 0]].any()


def test_close_frees_the_emulators() -> None:
    games = make_atari("pong", num_envs=1, seed=0)
    games.close()
    assert "_emulators" not in envs_of(games).__dict__


SETTINGS = AtariSettings(max_frames=40, sticky=0.25)


def actions(count: int) -> NDArray[np.int64]:
    return np.random.default_rng(0).integers(3, size=(count, 1))


@pytest.mark.parametrize("game", ["qbert", "air_raid@mode=2"])
def test_what_is_recorded_is_what_is_played(game: str) -> None:
    """Through the ends of episodes, with all frames, their rewards, and nothing else."""
    plain = make_atari(game, num_envs=1, seed=3, settings=SETTINGS)
    camera = RecordedAtari(game, settings=SETTINGS)
    games = GameVector(camera, seed=3)
    assert np.array_equal(games.reset(), plain.reset())
    ends = 0
    for action in actions(25):
        expected, step = plain.step(action), games.step(action)
        assert np.array_equal(step.observations, expected.observations)
        assert step.rewards == expected.rewards
        shots = camera.shots
        assert len(shots) == 4
        assert sum(reward for _, reward in shots) == step.rewards[0]
        assert shots[0][0].shape == (camera._emulators[0].height, 160, 3)
        seen = step.last_observations.get(0, step.observations[0])
        if not step.terminated[0]:
            pooled = np.maximum(shots[2][0], shots[3][0])
            assert np.abs(exact_resize(pooled) - seen).max() <= 0.51
        ends += int(step.truncated[0])
    assert ends == 2


def test_each_frame_is_its_own() -> None:
    camera = RecordedAtari("breakout", settings=AtariSettings(noop_max=0))
    games = GameVector(camera, seed=0)
    games.reset()
    for _ in range(10):
        games.step(np.array([1]))
    screens = [screen.tobytes() for screen, _ in camera.shots]
    assert len(set(screens)) > 1  # the ball flies


def test_frame_rates_are_the_televisions() -> None:
    assert frames_per_s("pong@mode=1") == 60
    assert frames_per_s("air_raid@mode=3") == 50


def test_observation_shapes_follow_from_channels_and_frames() -> None:
    assert PRESETS["paper"].observation_shape == (84, 84, 3)
    assert PRESETS["machado"].observation_shape == (84, 84, 4)
    assert PRESETS["noframeskip"].observation_shape == (84, 84, 4)
    assert AtariSettings(frame_stack=2).observation_shape == (84, 84, 6)


def test_the_presets_are_their_sources() -> None:
    assert PRESETS["paper"] == AtariSettings()
    machado, noframeskip = PRESETS["machado"], PRESETS["noframeskip"]
    assert (machado.sticky, machado.noop_max, machado.fire_reset) == (0.25, 0, False)
    assert not machado.life_loss_ends
    assert (noframeskip.sticky, noframeskip.noop_max) == (0.0, 30)
    assert noframeskip.fire_reset
    assert noframeskip.life_loss_ends
    assert {preset.max_frames for preset in PRESETS.values()} == {108_000}
    assert {preset.frameskip for preset in PRESETS.values()} == {4}


def test_a_config_is_checked_without_an_emulator() -> None:
    code = (
        "import sys, leap_rl.envs.atari.settings\n"
        "assert not {'ale_py', 'numba', 'gymnasium'} & sys.modules.keys()"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"frameskip": 0}, "atari.frameskip = 0"),
        ({"noop_max": -1}, "atari.noop_max = -1"),
        ({"sticky": 1.0}, "atari.sticky = 1.0"),
        ({"max_frames": 1002}, "atari.max_frames = 1002: must be a positive multiple"),
        ({"max_frames": 0}, "atari.max_frames = 0"),
        ({"frame_stack": 0}, "atari.frame_stack = 0"),
    ],
)
def test_senseless_settings_are_refused(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        AtariSettings(**changes)
