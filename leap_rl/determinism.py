"""The one place that says how this process computes, so that equal work gives equal bits.

A sum's bits depend on how many threads share it and on what becomes of denormal numbers. The
command line calls the first function before numpy and torch are imported, and a cluster that it
starts inherits it; on any other cluster Ray itself gives one thread to an actor of one core. Both
runtimes call the second in the thread that does the work (flushing denormals is a setting of the
thread).
"""

from __future__ import annotations

import os
import platform
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


def prepare_environment() -> None:
    """Set the thread variables that the numerical libraries read when they are imported."""
    os.environ.update(THREAD_VARIABLES)


def configure_torch() -> None:
    """Make torch in this thread compute the same bits wherever the processor is of one kind."""
    import torch

    torch.set_num_threads(1)
    with suppress(RuntimeError):  # settled already, by an earlier call or by work under way
        torch.set_num_interop_threads(1)
    torch.set_flush_denormal(True)
    torch.use_deterministic_algorithms(True)


@cache
def processor_kind() -> str:
    """Name what the bits depend on beyond the code: the processor and torch's use of it."""
    import torch

    return f"{_processor_model()}, {torch.backends.cpu.get_cpu_capability()}"


def _processor_model() -> str:
    try:
        with open("/proc/cpuinfo", encoding="utf-8") as lines:
            models = (line.partition(":")[2] for line in lines if line.startswith("model name"))
            return next(models).strip()
    except (OSError, StopIteration):
        return platform.processor() or platform.machine()
