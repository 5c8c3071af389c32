"""Measure a part of the system.

.venv/bin/python -m benchmarks.system overhead --seconds 40
"""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from typing import Any

from benchmarks.system import config
from leap_rl.app.errors import UsageError
from leap_rl.app.invocation import Invocation
from leap_rl.cli import EXIT_USAGE
from leap_rl.cli.bench import run
from leap_rl.compute.determinism import prepare_environment

BENCHES: dict[str, Any] = {
    "overhead": config.OverheadConfig,
    "snapshot": config.SnapshotConfig,
    "server": config.ServerConfig,
    "startup": config.StartupConfig,
    "omniglot": config.OmniglotBench,
}


def main(argv: Sequence[str]) -> int:
    """Run a measurement; returns the exit status."""
    try:
        return run(
            argv,
            BENCHES,
            Invocation(started_s=time.monotonic()),
            program="python -m benchmarks.system",
            package="benchmarks.system",
            example="overhead --seconds 40",
        )
    except UsageError as error:
        print(f"bench: {error}", file=sys.stderr)
        return EXIT_USAGE


if __name__ == "__main__":
    prepare_environment()  # before anything imports torch
    sys.exit(main(sys.argv[1:]))
