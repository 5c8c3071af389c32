"""Writes clips: MP4 by PyAV, GIF by Pillow. The only file that imports `av`."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import islice
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from leap_rl.storage.durable_files import open_atomically

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
    """Write a clip beside its place, and move it there once it is complete.

    Args:
        path: Ends in .mp4 or .gif.
        frames: All of one even width and height.
        width: Of a frame.
        height: Of a frame.
        frames_per_s: Their rate; a GIF gets every second frame.
        root: A folder that the clip lies in, below which no link is followed.

    Raises:
        OSError: It could not be written.
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
