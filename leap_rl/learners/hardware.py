"""Device and precision of an agent, where the config leaves them to the machine."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

import torch

from leap_rl.core.choices import REWARD_CLIP
from leap_rl.core.determinism import AgentPrecision, check_precision, has_bfloat16_units
from leap_rl.learners.config import AgentConfig
from leap_rl.learners.defaults import PAPER, resolved
from leap_rl.networks.custom import check_source, source_sha256

COMPILED: Final = ("minatar", "mlp")
"""Encoders whose passes are compiled loops."""


def resolve(config: AgentConfig) -> AgentConfig:
    """Return the config with each `auto`, and a custom encoder's SHA-256, resolved; once a run."""
    config = resolved(with_source(config), PAPER)  # of an agent without games
    device, precision, clip = config.device, config.precision, config.reward_clip
    if device == "auto":
        device = "cpu"
    if precision == "auto":
        precision = _fastest(config) if device == "cpu" else "float32"
    elif precision == "float32_compiled" and (config.encoder not in COMPILED or device != "cpu"):
        raise ValueError(
            f"agent.precision = float32_compiled: is for the encoders {' and '.join(COMPILED)} on "
            f"a CPU, and not for agent.encoder = {config.encoder} on {device}; take float32"
        )
    clip = REWARD_CLIP if clip == "auto" else clip  # likewise
    return replace(config, device=device, precision=precision, reward_clip=clip)


def _fastest(config: AgentConfig) -> AgentPrecision:
    """Return the fastest precision of an encoder on this machine's CPU."""
    if config.encoder in COMPILED:
        return "float32_compiled"
    # Units for bfloat16 speed large convolutions up. Of a custom encoder nothing is known.
    fast = has_bfloat16_units() and not config.encoder_spec.is_custom
    return "bfloat16" if fast else "float32"


def with_source(config: AgentConfig) -> AgentConfig:
    """Return the config with the SHA-256 of the file that defines a custom encoder."""
    spec = config.encoder_spec
    if spec.is_custom and spec.sha256 is None:
        return replace(config, encoder_sha256=source_sha256(spec))
    return config


def check_machine(config: AgentConfig) -> None:
    """Raise ValueError if this machine lacks the device, the precision or the encoder's file."""
    if config.encoder_spec.is_custom:
        check_source(config.encoder_spec)
    if config.device == "cuda" and not torch.cuda.is_available():
        raise ValueError(
            "agent.device = cuda: torch finds no CUDA device here; use cpu, or install torch's "
            "CUDA build where there is a GPU"
        )
    if config.device != "cuda":
        check_precision("agent.precision", config.precision)
