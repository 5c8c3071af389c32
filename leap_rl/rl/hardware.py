"""What an agent computes with, where the config leaves it to the machine."""

from __future__ import annotations

import os
from dataclasses import replace

import torch

from leap_rl.rl.config import AgentConfig

_ISA_VARIABLES = ("ONEDNN_MAX_CPU_ISA", "DNNL_MAX_CPU_ISA")
"""What the library that computes convolutions may use of the processor."""


def resolve(config: AgentConfig) -> AgentConfig:
    """Return the config with each `auto` replaced by what this machine is best at.

    A run does so once, when it is made: all of its agents then compute alike.
    """
    device, precision = config.device, config.precision
    if device == "auto":
        device = "cpu"
    if precision == "auto":
        fast = device == "cpu" and has_bfloat16_units()
        precision = "bfloat16" if fast else "float32"
    return replace(config, device=device, precision=precision)


def check_machine(config: AgentConfig) -> None:
    """Refuse a machine that cannot compute as the config says.

    Without its units bfloat16 is emulated: slower than float32, and other bits.

    Raises:
        ValueError: There is no such device here, or the processor lacks the precision's units.
    """
    if config.device == "cuda" and not torch.cuda.is_available():
        raise ValueError(
            "agent.device = cuda: torch finds no CUDA device here; use cpu, or install torch's "
            "CUDA build where there is a GPU"
        )
    if config.device != "cuda" and config.precision == "bfloat16" and not has_bfloat16_units():
        raise ValueError(
            "agent.precision = bfloat16: this processor has no units for it (Intel AMX); use "
            "float32, or processors that have them"
        )


def has_bfloat16_units() -> bool:
    """Whether bfloat16 matrices are multiplied faster than float32 ones here (Intel AMX)."""
    allowed = next((os.environ[name] for name in _ISA_VARIABLES if name in os.environ), "ALL")
    if allowed.upper() not in ("ALL", "DEFAULT") and "AMX" not in allowed.upper():
        return False
    return bool(torch.cpu.get_capabilities().get("amx_bf16", False))
