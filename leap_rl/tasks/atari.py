"""Atari games: their options, and how tasks are made of them. Importing this costs no torch."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, fields, replace
from typing import TYPE_CHECKING, Any, Literal

from leap_rl.envs.atari.games import resolve_games
from leap_rl.envs.atari.settings import PRESETS, AtariSettings
from leap_rl.tasks.played import PlayedFamily

if TYPE_CHECKING:
    from leap_rl.envs.vector import GameVector
    from leap_rl.learners.learner import Learner
    from leap_rl.tasks.config import TaskConfig

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
        """The whole of it."""
        options = {one.name: getattr(self, one.name) for one in fields(AtariSettings)}
        given = {name: value for name, value in options.items() if value is not None}
        return replace(PRESETS[self.preset], **given)

    def resolved(self) -> dict[str, Any]:
        """Return the options with nothing left to the preset."""
        return {"preset": self.preset, **asdict(self.settings)}


class AtariFamily(PlayedFamily):
    """ALE's games, with their modes and difficulties."""

    kind = "atari"
    options = ("agent_steps", "num_envs", "unroll_length", "atari")
    recordable = True
    spreads_environments = True
    # More than ten actions, so not in the pool to pretrain on, and none of the paper's nine either.
    validation_games = ("boxing", "seaquest")
    evaluation_games = "held_out"

    def resolve_games(self, games: Sequence[str]) -> tuple[str, ...]:
        """Return the games, pools and flavours spelled out."""
        return resolve_games(list(games))

    def frames_per_agent_step(self, task: TaskConfig) -> int:
        """Return the frames that an action is repeated for."""
        return task.atari.settings.frameskip

    def advise(self, task: TaskConfig, run: str) -> tuple[str, str]:
        """Return how to compare the initialization with random ones in a game."""
        game = "breakout@mode=12" if "breakout" in task.resolved_games else "breakout"
        agent_steps = task.agent_steps_per_update * max(
            1, round(96_000 / task.agent_steps_per_update)
        )
        return (
            "see whether agents learn a game it never saw faster from this initialization",
            f"evaluate --init {run} --games {game} --seeds 3 --agent_steps {agent_steps} --open",
        )

    def observation_shape(self, task: TaskConfig) -> tuple[int, ...]:
        """Return height, width and channels of a preprocessed screen."""
        return task.atari.settings.observation_shape

    def make_envs(self, tasks: Learner, game: str) -> Callable[[int], GameVector]:
        """Return what makes a game's B emulators from a seed."""
        from leap_rl.envs.atari.envs import make_atari

        return lambda seed: make_atari(
            game,
            num_envs=tasks.task.num_envs,
            seed=seed,
            settings=tasks.task.atari.settings,
            processes=tasks.env_processes,
        )
