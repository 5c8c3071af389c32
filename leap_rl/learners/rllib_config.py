"""Options of RLlib's PPO. Importing this imports neither torch nor Ray."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class RllibConfig:
    """PPO as RLlib has it, where it differs from our agent; defaults are RLlib's."""

    num_epochs: int = 30
    """Passes over each batch of task.num_envs × task.unroll_length agent steps."""

    minibatch_size: int = 128
    """Agent steps that an update learns from."""

    gae_lambda: float = 1.0
    """λ of the generalized advantage estimates."""

    clip: float = 0.3
    """Bound of the policy's ratio."""

    value_clip: float = 10.0
    """Bound of a squared error of the values."""

    def __post_init__(self) -> None:
        for name in ("num_epochs", "minibatch_size"):
            if getattr(self, name) < 1:
                raise ValueError(f"agent.rllib.{name} = {getattr(self, name)}: must be at least 1")
        if not 0 <= self.gae_lambda <= 1:
            raise ValueError(f"agent.rllib.gae_lambda = {self.gae_lambda}: must lie in [0, 1]")
        for name in ("clip", "value_clip"):
            if not getattr(self, name) > 0:
                raise ValueError(
                    f"agent.rllib.{name} = {getattr(self, name)}: must be greater than 0"
                )
