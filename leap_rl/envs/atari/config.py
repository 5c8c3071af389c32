"""Options of Atari games. Importing this imports neither torch nor an emulator."""

from __future__ import annotations

from dataclasses import asdict, dataclass, fields, replace
from typing import Any, Literal

from leap_rl.envs.atari.settings import PRESETS, AtariSettings

AtariPreset = Literal["paper", "machado", "noframeskip"]
"""Settings of the emulator by name."""


@dataclass(frozen=True)
class AtariConfig:
    """How Atari games are run: a preset, and options that differ from it (null: none)."""

    preset: AtariPreset = "paper"
    """paper: RGB, one frame, up to 30 no-ops. machado: gray, 4 frames, sticky actions (Machado et
    al. 2018, as in Dopamine). noframeskip: gray, 4 frames, no-ops, FIRE, and the loss of a life is
    an end to learning (OpenAI Baselines, most A2C results)."""

    frameskip: int | None = None
    """Frames in an agent step. From 2 on the observation is the maximum of the last two."""

    noop_max: int | None = None
    """The most no-ops, of one frame each, at the start of an episode."""

    sticky: float | None = None
    """Probability that a frame repeats the action of the frame before it."""

    max_frames: int | None = None
    """Frames after which an episode is truncated; a multiple of frameskip."""

    grayscale: bool | None = None
    """One channel of luminance instead of red, green and blue."""

    frame_stack: int | None = None
    """Frames in an observation, one an agent step."""

    fire_reset: bool | None = None
    """Press FIRE before an episode's first observation, in games that have it."""

    life_loss_ends: bool | None = None
    """Learning treats the loss of a life as an end; the episode continues."""

    def __post_init__(self) -> None:
        if self.preset not in PRESETS:
            raise ValueError(
                f"task.atari.preset = {self.preset!r}: must be one of {', '.join(PRESETS)}"
            )
        try:
            _ = self.settings
        except ValueError as error:
            raise ValueError(f"task.{error}") from None

    @property
    def settings(self) -> AtariSettings:
        options = {one.name: getattr(self, one.name) for one in fields(AtariSettings)}
        given = {name: value for name, value in options.items() if value is not None}
        return replace(PRESETS[self.preset], **given)

    def resolved(self) -> dict[str, Any]:
        return {"preset": self.preset, **asdict(self.settings)}
