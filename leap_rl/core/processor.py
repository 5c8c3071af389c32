"""The numbers that networks compute with, and what the processor can do with them.

Importing this costs no import of torch.
"""

from __future__ import annotations

import os
from typing import Literal

Precision = Literal["float32", "bfloat16"]
"""Of weights and activations within a network; parameters and what comes out are float32."""

_ISA_VARIABLES = ("ONEDNN_MAX_CPU_ISA", "DNNL_MAX_CPU_ISA")
"""What the library that computes convolutions may use of the processor."""

_ISAS_WITHOUT_BFLOAT16 = (
    *["SSE41", "AVX", "AVX2", "AVX2_VNNI", "AVX2_VNNI_2"],
    *["AVX512_CORE", "AVX512_CORE_VNNI"],
)
"""Its names for what has no fast bfloat16 of 512 bits."""


def has_bfloat16_units() -> bool:
    """Whether bfloat16 matrices are multiplied faster than float32 ones here.

    So they are by Intel AMX, and by AVX512's own bfloat16 instructions.
    """
    import torch

    allowed = next((os.environ[name] for name in _ISA_VARIABLES if name in os.environ), "ALL")
    if allowed.upper() in _ISAS_WITHOUT_BFLOAT16:
        return False
    if not hasattr(torch.cpu, "get_capabilities"):  # torch 2.6 has none
        return False
    capabilities = torch.cpu.get_capabilities()
    return any(capabilities.get(units, False) for units in ("amx_bf16", "avx512_bf16"))


def check_precision(option: str, precision: str) -> None:
    """Raise ValueError for bfloat16 that would be emulated, slowly and to other bits."""
    if precision == "bfloat16" and not has_bfloat16_units():
        raise ValueError(
            f"{option} = bfloat16: this processor has no units for it (AMX or AVX512_BF16); "
            "use float32, or processors that have them"
        )
