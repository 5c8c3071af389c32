"""Clips on disk: MP4 by PyAV, GIF by Pillow. The only file that imports `av`.

A clip is written beside its place and moved there when it is whole.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from leap_rl.storage.durable_files import open_atomically

GIF_LONGEST_S = 60
"""Pillow holds all frames of a GIF in memory."""
GIF_LARGEST_SCALE = 2


class NoVideoError(ValueError):
    """What writes MP4 is not installed."""


class Clip(ABC):
    """Takes the frames of a clip, one after another."""

    @abstractmethod
    def add(self, frame: NDArray[np.uint8]) -> None:
        """Add the next frame, uint8 [height, width, 3], and keep none of it."""

    @abstractmethod
    def finish(self) -> None:
        """Write what is left."""


class Mp4Clip(Clip):
    """H.264 in MP4, every frame.

    Args:
        file: where to write.
        width: of a frame; even.
        height: of a frame; even.
        frames_per_s: shown, and added.
    """

    def __init__(self, file: BinaryIO, *, width: int, height: int, frames_per_s: int) -> None:
        import av

        self._av = av
        self._container = av.open(file, "w", format="mp4")
        self._stream: Any = self._container.add_stream("libx264", rate=frames_per_s)
        self._stream.width, self._stream.height = width, height
        self._stream.pix_fmt = "yuv420p"  # the one that every player shows
        self._stream.options = {"crf": "18", "preset": "veryfast"}
        self._stream.codec_context.thread_count = 1  # so that equal frames give equal files

    def add(self, frame: NDArray[np.uint8]) -> None:
        """Encode a frame."""
        picture = self._av.VideoFrame.from_ndarray(frame, format="rgb24")
        self._container.mux(self._stream.encode(picture))

    def finish(self) -> None:
        """Encode what was held back, and close the file."""
        self._container.mux(self._stream.encode())
        self._container.close()


class GifClip(Clip):
    """GIF, every second frame, as viewers show no more than 50 a second.

    A frame that is left out is not lost: each is the maximum of two, so that what a game draws in
    every other frame alone does not vanish.

    Args:
        file: where to write.
        frames_per_s: added.
    """

    def __init__(self, file: BinaryIO, *, frames_per_s: int) -> None:
        self._file = file
        self._frames_per_s = frames_per_s
        self._added = 0
        self._shown_ms = 0
        self._odd: NDArray[np.uint8] | None = None
        self._images: list[Image.Image] = []

    def add(self, frame: NDArray[np.uint8]) -> None:
        """Keep every second frame."""
        self._added += 1
        if self._odd is None:
            self._odd = frame.copy()
        else:
            self._keep(np.maximum(self._odd, frame))
            self._odd = None

    def finish(self) -> None:
        """Write the file."""
        if self._odd is not None:
            self._keep(self._odd)
        first, *others = self._images
        first.save(self._file, "GIF", save_all=True, append_images=others, loop=0, optimize=False)

    def _keep(self, frame: NDArray[np.uint8]) -> None:
        image = Image.fromarray(frame).convert("P", palette=Image.Palette.ADAPTIVE)
        # To the hundredths of a second that a GIF knows; so that the clip as a whole keeps time.
        end_ms = 10 * round(100 * self._added / self._frames_per_s)
        image.info["duration"] = end_ms - self._shown_ms
        self._shown_ms = end_ms
        self._images.append(image)


def check_format(path: Path) -> None:
    """Refuse what cannot be written, before anything is played.

    Raises:
        ValueError: The name ends otherwise than in .mp4 or .gif.
        NoVideoError: PyAV is missing.
    """
    if path.suffix not in (".mp4", ".gif"):
        raise ValueError(f"out = {path}: must end in .mp4 or .gif")
    if path.suffix == ".mp4":
        check_video(f"out = {path}", "write a .gif")


def check_video(option: str, way_out: str = "leave it out") -> None:
    """Refuse to write MP4 where it cannot be.

    Args:
        option: Asks for it.
        way_out: What to do instead.

    Raises:
        NoVideoError: PyAV is missing.
    """
    try:
        import av  # noqa: F401
    except ImportError:
        raise NoVideoError(
            f"{option}: MP4 takes PyAV, which is not installed; "
            f"`pip install av` brings it (so does leap-rl[video]), or {way_out}"
        ) from None


@contextmanager
def open_clip(
    path: Path, *, width: int, height: int, frames_per_s: int, root: Path | None = None
) -> Iterator[Clip]:
    """Write a clip; it is at its place when the block is left, unless by an exception.

    Args:
        path: ends in .mp4 or .gif.
        root: a folder that it lies in, below which no link is followed.
        width: of a frame; even.
        height: of a frame; even.
        frames_per_s: added, and shown.

    Raises:
        OSError: It could not be written.
    """
    with open_atomically(path, root=root) as file:
        clip: Clip
        if path.suffix == ".mp4":
            clip = Mp4Clip(file, width=width, height=height, frames_per_s=frames_per_s)
        else:
            clip = GifClip(file, frames_per_s=frames_per_s)
        yield clip
        clip.finish()
