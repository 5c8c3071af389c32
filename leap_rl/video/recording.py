"""Films what is played."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from itertools import chain
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from leap_rl.video.clip import write_clip
from leap_rl.video.playing import Picture
from leap_rl.video.renderer import Drawing


def film(
    pictures: Iterable[Picture],
    out: Path,
    *,
    title: str,
    episodes: int,
    scale: int,
    frames_per_s: int,
    tell: Callable[[Picture], None],
    root: Path | None = None,
) -> list[Picture]:
    """Write a clip of pictures, at least one.

    Args:
        pictures: Of one game.
        out: An .mp4 or a .gif.
        title: Goes above each picture.
        episodes: How many there may be; of several, each picture says which it is of.
        scale: How often each row of a picture is repeated.
        frames_per_s: Pictures shown a second.
        tell: Called with each picture.
        root: A folder that the clip lies in, below which no link is followed.

    Returns:
        The last picture of each episode.

    Raises:
        OSError: The clip could not be written; there is none then.
    """
    ends: dict[int, Picture] = {}
    played = iter(pictures)
    first = next(played)
    drawing = Drawing(height=len(first.screen), scale=scale)

    def frames() -> Iterator[NDArray[np.uint8]]:
        for picture in chain([first], played):
            caption = f"score {picture.score:,}   agent step {picture.agent_steps:,}"
            if episodes > 1:
                caption = f"episode {picture.episode}   {caption}"
            yield drawing.draw(picture.screen, title=title, caption=caption)
            ends[picture.episode] = picture
            tell(picture)

    write_clip(
        out,
        frames(),
        width=drawing.width,
        height=drawing.height,
        frames_per_s=frames_per_s,
        root=root,
    )
    return list(ends.values())
