"""The one place that says how this process computes, so that equal work gives equal bits.

A sum's bits depend on how many threads share it and on what becomes of denormal numbers. The
command line calls the first function before numpy and torch are imported, and a cluster that it
starts inherits it; on any other cluster Ray itself gives one thread to an actor of one core. Both
runtimes call the second in the thread that does the work (flushing denormals is a setting of the
thread).
"""

from __future__ import annotations

import ctypes
import os
import platform
import subprocess
import sys
from contextlib import suppress
from functools import cache
from typing import Final

THREAD_VARIABLES: Final = {
    "OMP_NUM_THREADS": "1",
    "MKL_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
    "NUMEXPR_NUM_THREADS": "1",
}
"""One thread a learner: on these small networks a second one costs more than it brings."""

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


def leave_cuda_undetermined() -> None:
    """Let torch compute on a GPU as it can: some gradients, as that of pooling, sum in any order.

    The promise of the same bits is of the CPU alone.
    """
    import torch

    torch.set_deterministic_debug_mode("default")


def _keep_freed_memory() -> None:
    """Let glibc keep freed memory for the next tensors.

    Otherwise it gives tensors of more than some hundred KB back to the system, which clears each
    page again: a tenth of an update's time. Bits do not depend on it.
    """
    with suppress(OSError, AttributeError):  # another C library
        mallopt = ctypes.CDLL(None).mallopt
        mallopt(_M_MMAP_THRESHOLD, 32 << 20)  # the most that it takes
        mallopt(_M_TRIM_THRESHOLD, 256 << 20)


@cache
def processor_kind() -> str:
    """Name what the bits depend on beyond the code: the processor and torch's use of it."""
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
