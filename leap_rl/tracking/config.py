"""Tracking options. All are operational: none changes what is learned."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal

ConsoleKind = Literal["auto", "rich", "plain", "quiet"]
WandbMode = Literal["disabled", "offline", "online"]

OF_A_SWEEP: Final = ("WANDB_RUN_ID", "WANDB_SWEEP_ID", "WANDB_SWEEP_PARAM_PATH")
"""Variables in which a sweep's agent names the wandb run of the program that it starts."""


@dataclass(frozen=True, kw_only=True)
class TrackingConfig:
    """Where metrics go besides `metrics.jsonl`, which is always written."""

    wandb: WandbMode = "disabled"
    """Mirror to Weights & Biases: not at all, into files (`wandb sync` later), or live."""

    wandb_project: str = "leap-rl"
    """The wandb project that the run belongs to."""

    wandb_entity: str | None = None
    """The wandb user or team; none takes the account's default."""

    wandb_group: str | None = None
    """Runs of one group are shown together, for instance the seeds of one experiment."""

    wandb_tags: tuple[str, ...] = ()
    """Labels of the wandb run."""

    wandb_initializations_every: int = 10
    """Meta-steps between two initializations that become versions of the wandb run's artifact; the
    last one becomes one in any case. 0: none."""

    tensorboard: bool = True
    """Mirror to TensorBoard files in the run folder."""

    console: ConsoleKind = "auto"
    """Progress on stderr: `rich` draws live bars, `plain` prints lines, `auto` takes `rich` on a
    terminal and `plain` elsewhere, `quiet` shows nothing."""

    def __post_init__(self) -> None:
        if self.wandb_initializations_every < 0:
            raise ValueError(
                "tracking.wandb_initializations_every = "
                f"{self.wandb_initializations_every}: must be at least 0"
            )
