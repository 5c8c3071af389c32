"""What an agent computes with, where the config leaves it to the machine."""

from __future__ import annotations

import os
from dataclasses import replace

import torch

from leap_rl.rl.config import AgentConfig

_ISA_VARIABLES = ("ONEDNN_MAX_CPU_ISA", "DNNL_MAX_CPU_ISA")
"""What the library that computes convolutions may use of the processor."""

_ISAS_WITHOUT_BFLOAT16 = (
    *["SSE41", "AVX", "AVX2", "AVX2_VNNI", "AVX2_VNNI_2"],
    *["AVX512_CORE", "AVX512_CORE_VNNI"],
)
"""Its names for what has no fast bfloat16 of 512 bits."""


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
            "agent.precision = bfloat16: this processor has no units for it (AMX or AVX512_BF16); "
            "use float32, or processors that have them"
        )


def has_bfloat16_units() -> bool:
    """Whether bfloat16 matrices are multiplied faster than float32 ones here.

    So they are by Intel AMX, and by AVX512's own bfloat16 instructions.
    """
    allowed = next((os.environ[name] for name in _ISA_VARIABLES if name in os.environ), "ALL")
    if allowed.upper() in _ISAS_WITHOUT_BFLOAT16:
        return False
    capabilities = torch.cpu.get_capabilities()
    return any(capabilities.get(units, False) for units in ("amx_bf16", "avx512_bf16"))
