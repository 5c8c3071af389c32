"""Options of Gymnasium environments. Importing this imports neither torch nor Gymnasium."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal, get_args

Pad = Literal["refuse", "zeros"]
"""What happens to observations that are smaller than others of the pool."""

MinAtarView = Literal["channels", "palette"]
"""How MinAtar's games are shown."""

LARGEST_OBSERVATION = 2**22
"""Elements."""


@dataclass(frozen=True)
class GymnasiumConfig:
    """How Gymnasium environments, one's own too, are run."""

    pad: Pad = "refuse"
    """What happens where the observations of task.games differ in shape. refuse: it is an error,
    which names the shapes. zeros: each gets zeros after its last element, or after its last row,
    column and channel, up to the largest."""

    observation_shape: list[int] | None = None
    """What the encoder sees: height, width and channels of an image, or the length of a vector.
    None takes the largest of task.games, found when the run is made and written down. To learn a
    smaller game from an initialization of larger ones, give theirs, and pad."""

    minatar: MinAtarView = "channels"
    """How MinAtar's games are shown. channels: as they are, a plane of 10 × 10 cells for each kind
    of thing, which differ between games. palette: as pictures of 10 × 10 × 3, in colors that mean
    the same in all of them (leap_rl/envs/minatar/games.py lists them)."""

    remake: bool = False
    """Make a new environment for each episode, for games whose reset leaves something of the last
    episode behind. Takes as long as making one does."""

    def __post_init__(self) -> None:
        for name, choices in (("pad", get_args(Pad)), ("minatar", get_args(MinAtarView))):
            if (value := getattr(self, name)) not in choices:
                raise ValueError(
                    f"task.gymnasium.{name} = {value!r}: must be one of {', '.join(choices)}"
                )
        shape = self.observation_shape
        if shape is not None and not (
            len(shape) in (1, 3) and min(shape) > 0 and math.prod(shape) <= LARGEST_OBSERVATION
        ):
            raise ValueError(
                f"task.gymnasium.observation_shape = {shape}: must be [height, width, channels] "
                f"or [length], of at most {LARGEST_OBSERVATION} elements"
            )

    @property
    def shape(self) -> tuple[int, ...] | None:
        return None if self.observation_shape is None else tuple(self.observation_shape)

    @property
    def palette(self) -> bool:
        return self.minatar == "palette"
