"""How an Atari game is run: settings and their presets, free of any emulator.

What the defaults rest on; "the paper" is its appendix "Experiment details: Atari".

* Observations are 84 × 84 × 3 RGB (the paper): the emulator's screen, averaged over areas. One
  frame, no stack, since the paper gives three channels and they are RGB.
* Actions are the game's minimal set (the paper: its table's action counts are those).
* An action is repeated for 4 frames (Mnih et al. 2013, whose network the paper uses) and the
  observation is the maximum of the last two (Mnih et al. 2015). The paper is silent.
* An episode starts with 0 to 30 no-ops, drawn uniformly (after Mnih et al. 2015, where it is
  "up to 30"). They are no agent steps.
* An action is never repeated by chance: "sticky actions" (Machado et al. 2018) are off, as in the
  literature that the paper follows; the paper is silent.
* Rewards are the game's own. The paper clips them to ±5, which is the agent's business.
* An episode terminates when the game is over, not when a life is lost, and is truncated after
  108,000 frames, which are 27,000 agent steps or half an hour, counted from the first observation
  (not given in the paper).
* No FIRE is pressed for the agent at the start of an episode: the paper mentions none.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, fields, replace
from typing import Any, Literal

SCREEN = 84
"""Height and width of an observation, in pixels."""

LONGEST_STACK = 64
"""Frames in an observation; 64 are more than a megabyte in RGB."""


@dataclass(frozen=True, kw_only=True, slots=True)
class AtariSettings:
    """How the emulator is run; `AtariConfig` explains the fields, the top of the file defaults."""

    frameskip: int = 4
    noop_max: int = 30
    sticky: float = 0.0
    max_frames: int = 108_000
    grayscale: bool = False
    """One channel of luminance (ALE's own gray palette) instead of red, green and blue."""
    frame_stack: int = 1
    """Frames in an observation, one an agent step; at an episode's start the first is repeated."""
    fire_reset: bool = False
    """Press FIRE for `frameskip` frames, which are no agent step, before an episode's first
    observation, in games that have it."""
    life_loss_ends: bool = False

    def __post_init__(self) -> None:
        if self.frameskip < 1:
            raise ValueError(f"atari.frameskip = {self.frameskip}: must be at least 1")
        if self.noop_max < 0:
            raise ValueError(f"atari.noop_max = {self.noop_max}: must be at least 0")
        if not 0.0 <= self.sticky < 1.0:
            raise ValueError(f"atari.sticky = {self.sticky}: must lie in [0, 1)")
        if self.max_frames < 1 or self.max_frames % self.frameskip:
            fitting = max(self.max_frames // self.frameskip, 1) * self.frameskip
            raise ValueError(
                f"atari.max_frames = {self.max_frames}: must be a positive multiple of "
                f"atari.frameskip = {self.frameskip}; take atari.max_frames = {fitting}"
            )
        if not 1 <= self.frame_stack <= LONGEST_STACK:
            raise ValueError(
                f"atari.frame_stack = {self.frame_stack}: must lie in 1..{LONGEST_STACK}"
            )

    @property
    def channels(self) -> int:
        return 1 if self.grayscale else 3

    @property
    def observation_shape(self) -> tuple[int, int, int]:
        """Height, width and channels of an observation; a stack's oldest frame comes first."""
        return SCREEN, SCREEN, self.frame_stack * self.channels


PRESETS: dict[str, AtariSettings] = {
    "paper": AtariSettings(),
    "machado": AtariSettings(grayscale=True, frame_stack=4, sticky=0.25, noop_max=0),
    "noframeskip": AtariSettings(
        grayscale=True, frame_stack=4, fire_reset=True, life_loss_ends=True
    ),
}
"""Settings by name.

* `paper`: the defaults, as explained at the top of this module.
* `machado`: the protocol of Machado et al. 2018, "Revisiting the Arcade Learning Environment", as
  Dopamine (Castro et al. 2018) runs it: sticky actions with probability 0.25, no no-ops, the loss
  of a life ends nothing, gray, 4 frames, 108,000 frames an episode (Machado et al. stop at
  18,000) and the minimal actions (Machado et al. use all 18).
* `noframeskip`: what OpenAI Baselines (Dhariwal et al. 2017) makes of Gym's `NoFrameskip-v4` by
  `make_atari` and `wrap_deepmind`, in which most A2C results are given: gray, 4 frames, up to 30
  no-ops, FIRE at the start, the loss of a life is an end to learning. Rewards clipped to their
  sign are the agent's setting. Baselines differs in details: it draws 1 to 30 no-ops; follows FIRE
  by the game's third action; after the loss of a life makes one no-op and presses FIRE again,
  which is left to the agent here; and lets an episode last 400,000 frames. Its observation is the
  luminance of the pooled RGB frames; here, as in ale-py's own vector environment, it is the
  maximum of both frames' luminances.
"""


AtariPreset = Literal["paper", "machado", "noframeskip"]


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
