"""The kernel against exact arithmetic, on random screens; and the emulator's colors."""

from __future__ import annotations

from fractions import Fraction

import ale_py
import numpy as np
import pytest
from ale_py import roms
from numpy.typing import NDArray

from leap_rl.envs.atari.emulator import luminances, palette
from leap_rl.envs.atari.games import ACTION_COUNTS
from leap_rl.envs.atari.preprocessing import FrameRenderer, area_weights
from tests.envs.vectors import exact_resize

HEIGHTS = (210, 214, 220, 230, 250)  # of all 62 games
NTSC = palette("pong")


def painter_of(height: int, *, grayscale: bool = False, frames: int = 1) -> FrameRenderer:
    colors = luminances(NTSC)[:, None] if grayscale else NTSC
    return FrameRenderer(height, colors, num_envs=2, frames=frames)


def random_screens(rng: np.random.Generator, height: int) -> NDArray[np.uint8]:
    """[2, height, 160]: any indices, odd ones too."""
    return rng.integers(256, size=(2, height, 160), dtype=np.uint8)


@pytest.mark.parametrize("source", [160, *HEIGHTS])
def test_area_weights_share_out_every_row_completely(source: int) -> None:
    first, weights = area_weights(source)
    share = Fraction(source, 84) / int(weights[0].sum())  # screen rows a unit of weight stands for
    covered = [Fraction(0)] * (source + weights.shape[1])
    for row in range(84):
        assert weights[row].sum() * share == Fraction(source, 84)
        for k, weight in enumerate(weights[row].tolist()):
            covered[first[row] + k] += weight * share
    assert covered[:source] == [1] * source
    assert not any(covered[source:])


@pytest.mark.parametrize("height", HEIGHTS)
@pytest.mark.parametrize("grayscale", [True, False])
def test_a_drawn_frame_is_the_rounded_average_of_the_pooled_screens(
    height: int, grayscale: bool
) -> None:
    rng = np.random.default_rng(height)
    renderer = painter_of(height, grayscale=grayscale)
    renderer.screens[:] = random_screens(rng, height)
    renderer.draw(1)
    colors = luminances(NTSC)[:, None] if grayscale else NTSC
    pooled = colors[renderer.screens].max(axis=0)
    drawn = renderer.observations[1]
    assert np.abs(drawn - exact_resize(pooled)).max() < 0.5 + 1e-6
    assert not renderer.observations[0].any()


def test_the_brightest_screen_overflows_nothing() -> None:
    for height in HEIGHTS:
        renderer = FrameRenderer(height, np.full((256, 3), 255, np.uint8), num_envs=1, frames=1)
        renderer.draw(0)
        assert (renderer.observations == 255).all()


def test_drawing_what_changed_gives_what_drawing_all_gives() -> None:
    # Rows change in the first frame only, in the second only, in both alike, or not at all.
    rng = np.random.default_rng(0)
    for height in (210, 250):
        careful, plain = painter_of(height), painter_of(height)
        one, two = careful.screens
        one[:] = two[:] = random_screens(rng, height)[0]
        for _ in range(40):
            for screens in ((one,), (two,), (one, two), ()):
                row, column = rng.integers(height), rng.integers(160)
                for screen in screens:
                    screen[row, column] = rng.integers(256)
            if rng.random() < 0.5:
                one[:] = two
            careful.draw(0)
            plain.screens[:] = careful.screens
            plain.forget(0)
            plain.draw(0)
            assert np.array_equal(careful.observations[0], plain.observations[0])


@pytest.mark.parametrize(("grayscale", "frames"), [(True, 4), (True, 3), (False, 2)])
def test_a_stack_moves_by_one_frame_though_only_some_rows_are_drawn(
    grayscale: bool, frames: int
) -> None:
    rng = np.random.default_rng(0)
    single = painter_of(210, grayscale=grayscale)
    stacked = painter_of(210, grayscale=grayscale, frames=frames)
    channels = 1 if grayscale else 3
    seen = [np.zeros((84, 84, channels), np.uint8)] * frames
    screens = random_screens(rng, 210)
    for _ in range(6):
        screens[:, rng.integers(210, size=20)] = rng.integers(256, size=(2, 20, 160))
        single.screens[:] = stacked.screens[:] = screens
        single.draw(0)
        stacked.draw(0)
        seen = [*seen[1:], single.observations[0].copy()]
        assert np.array_equal(stacked.observations[0], np.concatenate(seen, axis=-1))


def screens_of(game: str, agent_steps: int) -> list[tuple[NDArray[np.uint8], ...]]:
    """Play at random; palette indices, colors and grays of every fourth frame."""
    ale = ale_py.ALEInterface()
    ale.loadROM(roms.get_rom_path(game))
    actions = ale.getMinimalActionSet()
    rng = np.random.default_rng(0)
    screens = []
    for action in rng.integers(len(actions), size=agent_steps):
        for _ in range(4):
            ale.act(actions[action])
        screens.append((ale.getScreen(), ale.getScreenRGB(), ale.getScreenGrayscale()))
    return screens


@pytest.mark.parametrize(
    ("game", "agent_steps"),
    [
        *(("up_n_down", 20), ("air_raid", 20)),  # the last is PAL
        *(pytest.param(game, 100, marks=pytest.mark.slow) for game in ACTION_COUNTS),
    ],
)
def test_screens_have_the_emulators_colors(game: str, agent_steps: int) -> None:
    colors = palette(game)
    for screen, rgb, grayscale in screens_of(game, agent_steps):
        even = screen % 2 == 0
        assert np.array_equal(colors[screen], rgb)
        assert np.array_equal(luminances(colors)[screen][even], grayscale[even])


def test_a_pal_game_shows_odd_indices_and_they_are_gray() -> None:
    odd = [screen[screen % 2 == 1] for screen, *_ in screens_of("air_raid", 30)]
    indices = np.unique(np.concatenate(odd))
    assert len(indices) > 5
    colors = palette("air_raid")[indices]
    assert (colors == colors[:, :1]).all()
    assert np.array_equal(luminances(colors), colors[:, 0])


def test_there_are_128_colors_and_none_is_missing() -> None:
    for game in ("pong", "adventure"):
        colors = palette(game)
        assert colors.shape == (256, 3)
        assert colors.dtype == np.uint8
        black = np.flatnonzero(~colors.any(axis=1)).tolist()
        assert set(black) <= {0, 1, 16, 17, 224, 225, 240, 241}  # the darkest of a gray hue
    assert palette("pong")[14].tolist() == [0xEC] * 3
    assert palette("pong")[0x1E].tolist() == [0xFC, 0xFC, 0x54]
