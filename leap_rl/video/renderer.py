"""Renders a clip's frames: the emulator's screen scaled up, with a line of text above it.

A pixel of the Atari 2600 is wider than it is high: 12 to 7 on an NTSC television. Pixels are
repeated a whole number of times each way, so that every one of them has the same sharp edges; at
the default scale they are 5 wide and 3 high.
"""

from __future__ import annotations

from fractions import Fraction

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageDraw, ImageFont

from leap_rl.envs.atari.preprocessing import WIDTH

PIXEL_ASPECT = Fraction(12, 7)
"""Width over height of a pixel."""

_LINE_HEIGHT, _LETTERS = 9, 7
"""Of the line above the picture, in rows of the game's screen."""
_LEAST_LINE_HEIGHT, _LEAST_LETTERS = 14, 11
"""The same in pixels: smaller ones cannot be read."""
_WHITE, _GRAY = (255, 255, 255), (150, 150, 150)


class FrameRenderer:
    """Renders a clip's frames.

    Args:
        height: Rows of the game's screen.
        scale: How often each row is repeated.

    Attributes:
        width: Of a frame, in pixels; even, as video asks for.
        height: Of a frame, in pixels; even.
    """

    def __init__(self, *, height: int, scale: int) -> None:
        self._repeat = scale, round(scale * PIXEL_ASPECT)
        self.width = WIDTH * self._repeat[1]
        rows = height * scale + max(_LINE_HEIGHT * scale, _LEAST_LINE_HEIGHT)
        self.height = rows + rows % 2
        self._top = self.height - height * scale
        self._font = ImageFont.load_default(size=max(_LETTERS * scale, _LEAST_LETTERS))
        self._frame = np.zeros((self.height, self.width, 3), dtype=np.uint8)
        self._text: tuple[str, str] | None = None

    def draw(self, screen: NDArray[np.uint8], *, title: str, caption: str) -> NDArray[np.uint8]:
        """Return a frame, uint8 [height, width, 3], which the next call overwrites.

        Args:
            screen: uint8 [rows, 160, 3].
            title: Goes to the left of the line, where there is room for it.
            caption: Goes to the right.
        """
        if self._text != (title, caption):
            self._text = title, caption
            self._frame[: self._top] = np.asarray(self._line(title, caption))
        rows, columns = self._repeat
        picture = self._frame[self._top :].reshape(len(screen), rows, WIDTH, columns, 3)
        picture[:] = screen[:, None, :, None]
        return self._frame

    def _line(self, title: str, caption: str) -> Image.Image:
        line = Image.new("RGB", (self.width, self._top))
        draw = ImageDraw.Draw(line)
        margin = self._repeat[1]
        middle = self._top / 2
        draw.text((self.width - margin, middle), caption, _WHITE, self._font, anchor="rm")
        room = self.width - 4 * margin - draw.textlength(caption, self._font)
        if draw.textlength(title, self._font) <= room:
            draw.text((margin, middle), title, _GRAY, self._font, anchor="lm")
        return line
