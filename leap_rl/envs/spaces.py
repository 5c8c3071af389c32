"""Observation and action spaces that an agent can use, and adapters for them."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from gymnasium import Space
from gymnasium.spaces import Box, Discrete
from numpy.typing import NDArray

from leap_rl.envs.gymnasium_config import LARGEST_OBSERVATION
from leap_rl.envs.state import Actions, Observations

MOST_ACTIONS = 2**16
"""Recorded actions are two bytes each."""
MOST_CHANNELS, LEAST_PICTURE = 4, 16
"""Of an image whose channels come first, and of its height and width."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ObservationAdapter:
    """How one environment's observations are shown to an agent.

    * uint8 of two or three dimensions is an image, [H, W] or [H, W, C], shown as it is; one that
      has its few channels first, as stacks of frames have, is shown as [H, W, C]. Booleans are
      too, as 0 and 255. An encoder scales all uint8 by 1/255, so that it sees 0 and 1.
    * uint8 and booleans of one dimension are a vector of uint8, likewise.
    * Other numbers of one or two dimensions are a vector of float32, as they are.
    * One of n is a vector of n uint8, all 0 but one of 255.
    """

    space: Space[Any]
    """The environment's."""
    shape: tuple[int, ...]
    """(H, W, C) or (length,)."""
    scaled: bool
    """uint8, which an encoder scales; otherwise float32, which it takes as it is."""
    channels_first: bool = False
    """Whether the environment's image is [C, H, W]."""

    @property
    def shown(self) -> Box:
        if self.scaled:
            return Box(0, 255, self.shape, np.uint8)
        return Box(-np.inf, np.inf, self.shape, np.float32)

    def show(self, observation: Any) -> Observations:
        if isinstance(self.space, Discrete):
            one_hot = np.zeros(self.shape, dtype=np.uint8)
            one_hot[int(observation) - int(self.space.start)] = 255
            return one_hot
        return self._converted(observation, self.shape)

    def show_all(self, observations: Any) -> Observations:
        """Return what `show` does, of B environments, [B, ...]."""
        if isinstance(self.space, Discrete):
            return np.array([self.show(one) for one in observations], dtype=np.uint8)
        return self._converted(observations, (len(observations), *self.shape))

    def _converted(self, observations: Any, shape: tuple[int, ...]) -> Observations:
        array = np.asarray(observations)
        if not self.scaled:
            return array.astype(np.float32).reshape(shape)
        if self.space.dtype == np.bool_:
            array = array.astype(np.bool_) * np.uint8(255)
        assert array.dtype == np.uint8, array.dtype
        if self.channels_first:
            array = np.moveaxis(array, -3, -1)
        return array.reshape(shape)


def adapter_of(space: Space[Any]) -> ObservationAdapter:
    """Return how observations of a space are shown; ValueError if they cannot be."""
    size = int(space.n) if isinstance(space, Discrete) else math.prod(space.shape or (1,))
    if not 1 <= size <= LARGEST_OBSERVATION:
        raise ValueError(
            f"has observations of {size:,} elements, and must have 1 to {LARGEST_OBSERVATION:,}"
        )
    if isinstance(space, Discrete):
        return ObservationAdapter(space=space, shape=(size,), scaled=True)
    if not isinstance(space, Box) or not space.shape:
        raise ValueError(
            f"has observations {_told(space)}, and must have a Box or a Discrete; "
            "gymnasium.wrappers.FlattenObservation makes a Box of most others"
        )
    scaled = space.dtype in (np.uint8, np.bool_)
    dimensions = len(space.shape)
    length = (size,)
    if scaled and dimensions <= 3:
        shape = length if dimensions == 1 else (*space.shape, 1)[:3]
        # Unmistakably [C, H, W]: few channels of a picture's size.
        first = dimensions == 3 and shape[0] <= MOST_CHANNELS < LEAST_PICTURE <= min(shape[1:])
        if first:
            shape = (*shape[1:], shape[0])
        return ObservationAdapter(space=space, shape=shape, scaled=True, channels_first=first)
    if not scaled and dimensions <= 2:
        return ObservationAdapter(space=space, shape=length, scaled=False)
    raise ValueError(
        f"has observations {_told(space)}; images must be uint8 or bool of two or three "
        "dimensions, and other numbers of one or two: convert or flatten them in a wrapper"
    )


class ActionAdapter:
    """How an agent's actions become an environment's; ValueError for a space of another kind.

    * 0..A-1 are those of a Discrete, which may start at another number.
    * D numbers are those of a Box, whose bounds are -1 and 1 to the agent; numbers beyond are
      clipped.

    `num_actions` is A or, if `continuous`, D.
    """

    def __init__(self, space: Space[Any]) -> None:
        self._space = space
        self.continuous = isinstance(space, Box)
        if isinstance(space, Discrete):
            if int(space.n) > MOST_ACTIONS:
                raise ValueError(f"has {space.n} actions, and must have at most {MOST_ACTIONS}")
            self.num_actions, self._start = int(space.n), int(space.start)
            return
        if not isinstance(space, Box) or space.dtype not in (np.float32, np.float64):
            raise ValueError(
                f"has actions {_told(space)}, and must have a Discrete or a Box of floats; "
                "wrap it to choose from a list of actions"
            )
        if not space.is_bounded():
            raise ValueError(
                f"has actions {_told(space)} without bounds; gymnasium.wrappers.TransformAction "
                "gives them some"
            )
        self.num_actions = math.prod(space.shape)
        if not self.num_actions:
            raise ValueError(f"has actions {_told(space)}, of no number at all")
        self._low, self._high = space.low.astype(np.float64), space.high.astype(np.float64)

    def take(self, action: Any) -> Any:
        """Return the environment's own action for one of the agent's, an int or D floats."""
        if not self.continuous:
            return self._start + action
        return self._scaled(np.clip(action, -1.0, 1.0).reshape(self._low.shape))

    def take_all(self, actions: Actions) -> NDArray[Any]:
        """Return the environments' own for all actions of B environments, [B, ...]."""
        if not self.continuous:
            return (self._start + actions).astype(self._space.dtype)
        clipped = np.clip(actions.astype(np.float64), -1.0, 1.0)
        return self._scaled(clipped.reshape(len(actions), *self._low.shape))

    def _scaled(self, clipped: NDArray[np.float64]) -> NDArray[Any]:
        low, high = self._low, self._high
        share = (clipped + 1.0) / 2.0
        return np.clip(low + share * (high - low), low, high).astype(self._space.dtype)


def _told(space: Space[Any]) -> str:
    """Describe a space without its bounds, which can be as long as an image."""
    if isinstance(space, Box):
        return f"Box of {space.dtype} {list(space.shape)}"
    return type(space).__name__
