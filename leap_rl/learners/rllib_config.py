"""Options of RLlib's PPO. Importing this imports neither torch nor Ray."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True)
class RllibConfig:
    """PPO as RLlib has it, where it differs from our agent; defaults are RLlib's."""

    num_epochs: int = 30
    """Passes over each batch of task.num_envs × task.unroll_length agent steps."""

    minibatch_size: int | Literal["auto"] = "auto"
    """Agent steps that an update learns from. auto, resolved when a run is made: RLlib's 128, or
    the whole batch where that is less."""

    gae_lambda: float = 1.0
    """λ of the generalized advantage estimates."""

    clip: float = 0.3
    """Bound of the policy's ratio."""

    value_clip: float = 10.0
    """Bound of a squared error of the values."""

    def __post_init__(self) -> None:
        for name in ("num_epochs", "minibatch_size"):
            value = getattr(self, name)
            if value != "auto" and value < 1:
                raise ValueError(f"agent.rllib.{name} = {value}: must be at least 1")
        if not 0 <= self.gae_lambda <= 1:
            raise ValueError(f"agent.rllib.gae_lambda = {self.gae_lambda}: must lie in [0, 1]")
        for name in ("clip", "value_clip"):
            if not getattr(self, name) > 0:
                raise ValueError(
                    f"agent.rllib.{name} = {getattr(self, name)}: must be greater than 0"
                )
