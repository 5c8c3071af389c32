from __future__ import annotations

import ale_py
import numpy as np
import pytest
from ale_py import roms
from numpy.typing import NDArray

from leap_rl.envs.atari.emulator import luminances, palette
from leap_rl.envs.atari.games import ACTION_COUNTS


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


def agrees(game: str, agent_steps: int) -> bool:
    colors = palette(game)
    gray = luminances(colors)
    for screen, rgb, grayscale in screens_of(game, agent_steps):
        even = screen % 2 == 0
        if not np.array_equal(colors[screen], rgb):
            return False
        if not np.array_equal(gray[screen][even], grayscale[even]):
            return False
    return True


@pytest.mark.parametrize("game", ["up_n_down", "air_raid"])  # the last is PAL
def test_screens_have_the_emulators_colors(game: str) -> None:
    assert agrees(game, 20)


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


@pytest.mark.slow
@pytest.mark.parametrize("game", ACTION_COUNTS)
def test_every_game_has_its_palette(game: str) -> None:
    assert agrees(game, 100)
