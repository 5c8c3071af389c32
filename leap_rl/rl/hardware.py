"""What an agent computes with, where the config leaves it to the machine."""

from __future__ import annotations

from dataclasses import replace

import torch

from leap_rl.compute.processor import check_precision, has_bfloat16_units
from leap_rl.rl.config import AgentConfig


def resolve(config: AgentConfig) -> AgentConfig:
    """Return the config with each `auto` replaced by what this machine is best at.

    A run does so once, when it is made: all of its agents then compute alike.
    """
    device, precision = config.device, config.precision
    if device == "auto":
        device = "cpu"
    if precision == "auto":
        # Units for bfloat16 speed large convolutions up; the loops for a small one know float32
        # alone, and of a vector bfloat16 would round off what counts.
        large = config.encoder not in ("minatar", "mlp")
        fast = device == "cpu" and has_bfloat16_units() and large
        precision = "bfloat16" if fast else "float32"
    return replace(config, device=device, precision=precision)


def check_machine(config: AgentConfig) -> None:
    """Refuse a machine that cannot compute as the config says.

    Raises:
        ValueError: There is no such device here, or the processor lacks the precision's units.
    """
    if config.device == "cuda" and not torch.cuda.is_available():
        raise ValueError(
            "agent.device = cuda: torch finds no CUDA device here; use cpu, or install torch's "
            "CUDA build where there is a GPU"
        )
    if config.device != "cuda":
        check_precision("agent.precision", config.precision)
