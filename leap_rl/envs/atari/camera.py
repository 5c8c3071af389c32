"""An Atari game that is recorded: every frame of the emulator, where an agent sees one in four.

The camera stands between `AtariEnvs`, with one environment, and its emulator.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, cast

import numpy as np
from ale_py import ALEInterface
from numpy.typing import NDArray

from leap_rl.envs.atari.envs import AtariEnvs
from leap_rl.envs.atari.modes import find_mode
from leap_rl.envs.atari.palette import PAL_GAMES
from leap_rl.envs.atari.settings import AtariSettings
from leap_rl.envs.vector import Stepped


@dataclass(frozen=True, kw_only=True, slots=True)
class Shot:
    """One frame."""

    screen: NDArray[np.uint8]
    """[height, 160, 3]: the emulator's own picture, in RGB."""
    reward: int
    """What the game gave in this frame."""


class _Camera:
    """Stands in for an emulator, and records each of its frames."""

    def __init__(self, ale: ALEInterface) -> None:
        self._ale = ale
        self.shots: list[Shot] = []

    def act(self, action: int) -> int:
        reward: int = self._ale.act(action)
        self.shots.append(Shot(screen=self._ale.getScreenRGB(), reward=reward))
        return reward

    def __getattr__(self, name: str) -> Any:
        return getattr(self._ale, name)


class RecordedAtari(AtariEnvs):
    """One environment of a game, and the frames of its last agent step."""

    def __init__(self, game: str, *, settings: AtariSettings) -> None:
        super().__init__(game, num_envs=1, settings=settings)
        (emulator,) = self._emulators
        self._camera = _Camera(emulator.ale)
        emulator.ale = cast(ALEInterface, self._camera)

    def step(self, actions: NDArray[np.int64]) -> Stepped:
        """Take one action."""
        self._camera.shots.clear()
        return super().step(actions)

    @property
    def shots(self) -> list[Shot]:
        """The frames of the last agent step, without those that start the next episode."""
        return self._camera.shots[: self._settings.frameskip]


def frames_per_s(game: str) -> int:
    """Return the television's frame rate in a game: 60 Hz (NTSC) or 50 Hz (PAL), to the nearest."""
    return 50 if find_mode(game).game in PAL_GAMES else 60
