"""Clips: frames of a game with a line of text above, written as MP4 by PyAV or GIF by Pillow.

A pixel of the Atari 2600 is wider than it is high: 12 to 7 on an NTSC television. Pixels are
repeated a whole number of times each way, so that every one of them has the same sharp edges; at
the default scale they are 5 wide and 3 high. This is the only file that imports `av`.
"""

from __future__ import annotations

from collections.abc import Iterable
from fractions import Fraction
from itertools import islice
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageDraw, ImageFont

from leap_rl.envs.atari.preprocessing import WIDTH
from leap_rl.storage.durable_files import open_atomically

PIXEL_ASPECT = Fraction(12, 7)
"""Width over height of a pixel."""

_LINE_HEIGHT, _LETTERS = 9, 7
"""Of the line above the picture, in rows of the game's screen."""
_LEAST_LINE_HEIGHT, _LEAST_LETTERS = 14, 11
"""The same in pixels: smaller ones cannot be read."""
_WHITE, _GRAY = (255, 255, 255), (150, 150, 150)


class FrameRenderer:
    """Renders a clip's frames, of an even `width` and `height` in pixels, as video asks for.

    The screen has the constructor's `height` in rows, each of which is repeated `scale` times.
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
        """Return a screen, uint8 [rows, 160, 3], as a frame that the next call overwrites.

        The title goes to the left where there is room for it, the caption to the right.
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


GIF_LONGEST_S = 60
"""Pillow holds all frames of a GIF in memory."""
GIF_LARGEST_SCALE = 2

Frames = Iterable[NDArray[np.uint8]]
"""Each uint8 [height, width, 3]; the next may overwrite it."""


class NoVideoError(ValueError):
    """PyAV is not installed."""


def check_format(path: Path) -> None:
    """Raise ValueError unless the name ends in .mp4 or .gif, NoVideoError if MP4 lacks PyAV."""
    if path.suffix not in (".mp4", ".gif"):
        raise ValueError(f"out = {path}: must end in .mp4 or .gif")
    if path.suffix == ".mp4":
        check_video(f"out = {path}", "write a .gif")


def check_video(option: str, way_out: str = "leave it out") -> None:
    """Raise NoVideoError if PyAV, which an option needs, is missing."""
    try:
        import av  # noqa: F401
    except ImportError:
        raise NoVideoError(
            f"{option}: MP4 takes PyAV, which is not installed; "
            f"`pip install av` brings it (so does leap-rl[video]), or {way_out}"
        ) from None


def write_clip(
    path: Path,
    frames: Frames,
    *,
    width: int,
    height: int,
    frames_per_s: int,
    root: Path | None = None,
) -> None:
    """Write an .mp4 or .gif beside its place, and move it there once it is complete.

    All frames have the even width and height; a GIF gets every second one. No link below `root` is
    followed. An OSError if it could not be written.
    """
    with open_atomically(path, root=root) as file:
        if path.suffix == ".mp4":
            _write_mp4(file, frames, width, height, frames_per_s)
        else:
            _write_gif(file, frames, frames_per_s)


def _write_mp4(file: BinaryIO, frames: Frames, width: int, height: int, frames_per_s: int) -> None:
    import av

    container = av.open(file, "w", format="mp4")
    stream: Any = container.add_stream("libx264", rate=frames_per_s)
    stream.width, stream.height = width, height
    stream.pix_fmt = "yuv420p"  # the one that every player shows
    # Equal frames give equal files with one thread, and without x264's macroblock tree, which in
    # one clip of some hundred depends on what was in memory before.
    stream.options = {"crf": "18", "preset": "veryfast", "x264-params": "mbtree=0"}
    stream.codec_context.thread_count = 1
    for frame in frames:
        container.mux(stream.encode(av.VideoFrame.from_ndarray(frame, format="rgb24")))
    container.mux(stream.encode())
    container.close()


def _write_gif(file: BinaryIO, frames: Frames, frames_per_s: int) -> None:
    """Write a GIF of every second frame, as viewers show no more than 50 a second.

    Each is the maximum of two, so that what a game draws in every other frame does not vanish.
    """
    images: list[Image.Image] = []
    read, shown_ms = 0, 0
    following = iter(frames)
    for frame in following:
        both = [frame.copy(), *islice(following, 1)]
        read += len(both)
        picture = np.maximum.reduce(both)
        image = Image.fromarray(picture).convert("P", palette=Image.Palette.ADAPTIVE)
        # To the hundredths of a second that a GIF knows; so that the clip as a whole keeps time.
        end_ms = 10 * round(100 * read / frames_per_s)
        image.info["duration"] = end_ms - shown_ms
        shown_ms = end_ms
        images.append(image)
    images[0].save(file, "GIF", save_all=True, append_images=images[1:], loop=0, optimize=False)
