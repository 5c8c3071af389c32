"""How this process computes, so that equal work gives equal bits; imports no torch.

A sum's bits depend on the number of threads and on the treatment of denormal numbers. The command
line calls `prepare_environment` before numpy and torch are imported, and a cluster that it starts
inherits the variables; on any other cluster Ray gives one thread to an actor of one core. Both
runtimes call `configure_torch` in the thread that computes: flushing denormals is a setting of it.
"""

from __future__ import annotations

import ctypes
import os
import platform
import subprocess
import sys
from contextlib import suppress
from functools import cache
from typing import Final, Literal

THREAD_VARIABLES: Final = {
    "OMP_NUM_THREADS": "1",
    "MKL_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
    "NUMEXPR_NUM_THREADS": "1",
}
"""One thread a learner: on these small networks a second one costs more than it brings."""

Precision = Literal["float32", "bfloat16"]
"""Of weights and activations within a network; parameters and what comes out are float32."""

AgentPrecision = Literal[Precision, "float32_compiled"]
"""float32_compiled: float32, in compiled loops that only small networks have."""

_ISA_VARIABLES: Final = ("ONEDNN_MAX_CPU_ISA", "DNNL_MAX_CPU_ISA")
"""They limit the instructions that oneDNN uses for convolutions."""

_ISAS_WITHOUT_BFLOAT16: Final = (
    *["SSE41", "AVX", "AVX2", "AVX2_VNNI", "AVX2_VNNI_2"],
    *["AVX512_CORE", "AVX512_CORE_VNNI"],
)
"""oneDNN's names of instruction sets without fast bfloat16."""

# glibc's malloc.h
_M_TRIM_THRESHOLD: Final = -1
_M_MMAP_THRESHOLD: Final = -3


def prepare_environment() -> None:
    """Set the thread variables that the numerical libraries read when they are imported."""
    os.environ.update(THREAD_VARIABLES)


def configure_torch() -> None:
    """Make torch in this thread compute the same bits wherever the processor is of one kind."""
    import torch

    _keep_freed_memory()

    # Read when CUDA is first used: without it deterministic matrix products are refused.
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    torch.set_num_threads(1)
    with suppress(RuntimeError):  # settled already, by an earlier call or by work under way
        torch.set_num_interop_threads(1)
    torch.set_flush_denormal(True)
    # What use_deterministic_algorithms(True) does, but for importing torch's compiler: seconds.
    torch.set_deterministic_debug_mode("error")
    # It would also write NaN into all fresh memory: an eighth of the time of a forward pass.
    torch.utils.deterministic.fill_uninitialized_memory = False  # type: ignore[attr-defined]


def configure_cuda() -> None:
    """Have a GPU multiply float32 as such, in any order: only CPUs promise bits."""
    import torch

    torch.set_deterministic_debug_mode("default")  # pooling's kernels are not deterministic
    # By default convolutions round to TF32, and an agent's gradient is off by 1.4 %.
    torch.backends.cudnn.allow_tf32 = False


def _keep_freed_memory() -> None:
    """Let glibc keep freed memory for the next tensors.

    It would return large tensors to the system, which clears each page again: a tenth of an
    update's time. Bits do not depend on it.
    """
    with suppress(OSError, AttributeError):  # another C library
        mallopt = ctypes.CDLL(None).mallopt
        mallopt(_M_MMAP_THRESHOLD, 32 << 20)  # the most that it takes
        mallopt(_M_TRIM_THRESHOLD, 256 << 20)


@cache
def processor_kind() -> str:
    """Name the processor and torch's use of it, on which the bits depend."""
    import torch

    return f"{_processor_model()}, {torch.backends.cpu.get_cpu_capability()}"


def _processor_model() -> str:
    if sys.platform == "darwin":
        with suppress(OSError, subprocess.CalledProcessError):
            asked = ["/usr/sbin/sysctl", "-n", "machdep.cpu.brand_string"]
            return subprocess.run(asked, check=True, capture_output=True, text=True).stdout.strip()
    try:
        with open("/proc/cpuinfo", encoding="utf-8") as lines:
            models = (line.partition(":")[2] for line in lines if line.startswith("model name"))
            return next(models).strip()
    except (OSError, StopIteration):
        return platform.processor() or platform.machine()


def has_bfloat16_units() -> bool:
    """Whether Intel AMX or AVX512_BF16 multiplies bfloat16 matrices faster than float32 ones."""
    import torch

    allowed = next((os.environ[name] for name in _ISA_VARIABLES if name in os.environ), "ALL")
    if allowed.upper() in _ISAS_WITHOUT_BFLOAT16:
        return False
    if not hasattr(torch.cpu, "get_capabilities"):  # torch 2.6 has none
        return False
    capabilities = torch.cpu.get_capabilities()
    return any(capabilities.get(units, False) for units in ("amx_bf16", "avx512_bf16"))


def check_precision(option: str, precision: str) -> None:
    """Raise ValueError for bfloat16 without units for it: emulated, it is slow and differs."""
    if precision == "bfloat16" and not has_bfloat16_units():
        raise ValueError(
            f"{option} = bfloat16: this processor has no units for it (AMX or AVX512_BF16); "
            "use float32, or processors that have them"
        )
