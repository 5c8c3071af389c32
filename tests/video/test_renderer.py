from __future__ import annotations

import numpy as np
import pytest

from leap_rl.video.clip import FrameRenderer


@pytest.mark.parametrize("height", [210, 213, 250])
@pytest.mark.parametrize("scale", [1, 2, 3, 4])
def test_pixels_are_repeated_and_sizes_are_even(height: int, scale: int) -> None:
    drawing = FrameRenderer(height=height, scale=scale)
    screen = np.random.default_rng(0).integers(256, size=(height, 160, 3), dtype=np.uint8)
    frame = drawing.draw(screen, title="", caption="")
    assert frame.shape == (drawing.height, drawing.width, 3)
    assert drawing.height % 2 == drawing.width % 2 == 0
    columns = drawing.width // 160
    assert columns / scale == pytest.approx(12 / 7, abs=0.3)
    picture = frame[-height * scale :]
    expected = np.repeat(np.repeat(screen, scale, axis=0), columns, axis=1)
    assert np.array_equal(picture, expected)


def lines(**said: str) -> np.ndarray[tuple[int, ...], np.dtype[np.uint8]]:
    drawing = FrameRenderer(height=210, scale=3)
    screen = np.zeros((210, 160, 3), dtype=np.uint8)
    drawing.draw(screen, title="x", caption="y")
    return drawing.draw(screen, **said)[:-630].copy()


def test_the_line_says_what_it_is_told() -> None:
    one = lines(title="pong", caption="score 1")
    assert one.any()
    assert np.array_equal(one, lines(title="pong", caption="score 1"))
    assert not np.array_equal(one, lines(title="pong", caption="score 2"))
    assert not np.array_equal(one, lines(title="qbert", caption="score 1"))


def test_a_title_that_has_no_room_is_left_out() -> None:
    assert np.array_equal(lines(title="x" * 90, caption="score"), lines(title="", caption="score"))
    assert not np.array_equal(lines(title="x" * 9, caption="sco"), lines(title="", caption="sco"))
