"""What an agent computes with, where the config leaves it to the machine."""

from __future__ import annotations

from dataclasses import replace

import torch

from leap_rl.rl.config import AgentConfig


def resolve(config: AgentConfig) -> AgentConfig:
    """Return the config with each `auto` replaced by what this machine has.

    A run does so once, when it is made: all of its agents then compute alike.

    Raises:
        ValueError: The config asks for a device that is not here.
    """
    device, precision = config.device, config.precision
    if device == "auto":
        device = "cpu"
    if device == "cuda" and not torch.cuda.is_available():
        raise ValueError(
            "agent.device = cuda: torch finds no CUDA device here; use cpu, or install torch's "
            "CUDA build where there is a GPU"
        )
    if precision == "auto":
        fast = device == "cpu" and has_bfloat16_units()
        precision = "bfloat16" if fast else "float32"
    return replace(config, device=device, precision=precision)


def has_bfloat16_units() -> bool:
    """Whether the processor multiplies bfloat16 matrices faster than float32 ones (Intel AMX)."""
    return bool(torch.cpu.get_capabilities().get("amx_bf16", False))
