"""Measure a part of the system.

.venv/bin/python -m benchmarks.system overhead --seconds 40
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

from benchmarks.system import config
from leap_rl.cli import EXIT_USAGE
from leap_rl.cli.bench import run
from leap_rl.core.determinism import prepare_environment

PROGRAM = "python -m benchmarks.system"

BENCHES: dict[str, Any] = {
    "overhead": config.OverheadConfig,
    "snapshot": config.SnapshotConfig,
    "server": config.ServerConfig,
    "crowd": config.CrowdConfig,
    "busy": config.BusyConfig,
    "lending": config.LendingConfig,
    "startup": config.StartupConfig,
    "omniglot": config.OmniglotBench,
}


def main(argv: Sequence[str]) -> int:
    """Run a measurement; returns the exit status."""
    name, *rest = argv or ["--help"]
    if name in ("-h", "--help"):
        print(f"usage: {PROGRAM} MEASUREMENT [OPTIONS]\n\nmeasurements, each with --help:")
        for name, options in BENCHES.items():
            print(f"  {name:<10} {options.__doc__.splitlines()[0]}")
        return 0
    try:
        if name not in BENCHES:
            raise ValueError(f"{name}: no such measurement; one of {', '.join(BENCHES)}")
        run(f"benchmarks.system.{name}", BENCHES[name], rest, f"{PROGRAM} {name}")
    except ValueError as error:
        print(f"bench: {error}", file=sys.stderr)
        return EXIT_USAGE
    return 0


if __name__ == "__main__":
    prepare_environment()  # before anything imports torch
    sys.exit(main(sys.argv[1:]))
