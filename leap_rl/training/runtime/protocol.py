"""What runs a run: here in one process, or on Ray."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from leap_rl.tracking.status import RunStatus
from leap_rl.training.run_spec import RunSpec


class Runtime(Protocol):
    """Runs a server and trainers somewhere until the run is finished."""

    def run(self, run_spec: RunSpec, report: Callable[[RunStatus], None]) -> None:
        """Run it; ``report`` is called with its status, several times a second at most.

        Raises:
            RunFailedError: The run cannot continue, or there is no cluster.
            RunFolderError: The run's folder is damaged.
            KeyboardInterrupt: The user stops it; the run's folder can be resumed.
        """
