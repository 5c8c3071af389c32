"""Exceptions that stop a run, each one line that a user can act on; what a command ends with."""

from __future__ import annotations

import signal
from typing import Final

from leap_rl.core.lines import printable, shortened
from leap_rl.core.urls import redacted

EXIT_FAILED: Final = 1
EXIT_USAGE: Final = 2
EXIT_STOPPED: Final = 75
"""The run's time was over (runtime.stop_after_s): EX_TEMPFAIL in sysexits.h, resume it."""
EXIT_INTERRUPTED: Final = 128 + signal.SIGINT
EXIT_TERMINATED: Final = 128 + signal.SIGTERM


class RunFailedError(RuntimeError):
    """A run cannot continue; its checkpoints stay."""


class ClusterLostError(RunFailedError):
    """The run's cluster is gone; the run can be resumed on another one."""


class UnfitMachineError(RunFailedError):
    """A trainer's machine cannot compute the run's tasks; others may."""


class UnfitSnapshotError(RunFailedError):
    """A snapshot in the run's folder is damaged, or holds what does not fit the run."""


class ProtocolError(RunFailedError):
    """A message does not belong to this run."""


def explained(error: Exception) -> tuple[int, str]:
    """Return the exit status and the one line of an error; raise one that no user can act on."""
    if not isinstance(error, ValueError | OSError | RunFailedError):
        raise error
    is_input = isinstance(error, ValueError | UnfitSnapshotError)
    status = EXIT_USAGE if is_input else EXIT_FAILED
    return status, shortened(printable(redacted(" ".join(str(error).split()))))
