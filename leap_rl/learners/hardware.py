"""What an agent computes with, where the config leaves it to the machine."""

from __future__ import annotations

from dataclasses import replace

import torch

from leap_rl.core.processor import check_precision, has_bfloat16_units
from leap_rl.learners.config import AgentConfig
from leap_rl.networks.custom import check_source, source_sha256


def resolve(config: AgentConfig) -> AgentConfig:
    """Return the config with each `auto` replaced by what this machine is best at.

    The file of a custom encoder is written down, too. A run does so once, when it is made: all of
    its agents then compute alike.
    """
    device, precision = config.device, config.precision
    spec = config.encoder_spec
    if spec.is_custom and spec.sha256 is None:
        config = replace(config, encoder_sha256=source_sha256(spec))
    if device == "auto":
        device = "cpu"
    if precision == "auto":
        # Units for bfloat16 speed large convolutions up; the loops for a small one know float32
        # alone, and of a vector bfloat16 would round off what counts. Of a custom encoder nothing
        # is known.
        large = config.encoder not in ("minatar", "mlp") and not spec.is_custom
        fast = device == "cpu" and has_bfloat16_units() and large
        precision = "bfloat16" if fast else "float32"
    return replace(config, device=device, precision=precision)


def check_machine(config: AgentConfig) -> None:
    """Raise ValueError for a machine that cannot compute as the config says.

    It lacks the device, the precision's units, or the very file of a custom encoder.
    """
    if config.encoder_spec.is_custom:
        check_source(config.encoder_spec)
    if config.device == "cuda" and not torch.cuda.is_available():
        raise ValueError(
            "agent.device = cuda: torch finds no CUDA device here; use cpu, or install torch's "
            "CUDA build where there is a GPU"
        )
    if config.device != "cuda":
        check_precision("agent.precision", config.precision)
