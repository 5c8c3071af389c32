"""``leap-rl bench``: how fast it is here, and where the time goes."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Sequence
from importlib import import_module
from typing import Any, Final

import jsonargparse

from leap_rl.bench.config import ThroughputConfig
from leap_rl.core.parsing import config_parser, parse
from leap_rl.runs.invocation import Invocation

BENCHES: Final[dict[str, Any]] = {"throughput": ThroughputConfig}
"""The config of each measurement."""

_USAGE = """\
usage: leap-rl bench throughput [OPTIONS]

Measure how fast it is here. Metrics go to stdout, as a table or with --json as one JSON object.

  leap-rl bench throughput --help    every option, with its default

start here:
  leap-rl bench throughput --game breakout"""


def main(argv: Sequence[str], call: Invocation) -> int:
    """Run the command; returns its exit status."""
    name, *rest = argv or ["--help"]
    if name in ("-h", "--help"):
        print(_USAGE)
        return 0
    if name not in BENCHES:
        raise ValueError(f"bench {name}: no such measurement; one of {', '.join(BENCHES)}")
    program, trusts_imports = f"leap-rl bench {name}", call.trusts_imports
    run(f"leap_rl.bench.{name}", BENCHES[name], rest, program, trusts_imports=trusts_imports)
    return 0


def run(
    module: str,
    config: type[Any],
    argv: Sequence[str],
    program: str,
    *,
    trusts_imports: bool = False,
) -> None:
    """Measure, and print the metrics.

    Args:
        module: Has `measure` and `table`; it is imported once the options are known to be good.
        config: Of the measurement.
        argv: Its options.
        program: What the user called.
        trusts_imports: Whether they may name modules that the measurement imports.

    Raises:
        ValueError: An option cannot be.
    """
    parser = bench_parser(config, program=program)
    try:
        options = parse(parser, config, argv, trusts_imports=trusts_imports)
        bench = import_module(module)  # which takes seconds
        metrics = bench.measure(options, tell)
    except ValueError as error:
        raise ValueError(_own_names(str(error))) from error
    print_metrics(metrics, bench.table, argv)


def _own_names(message: str) -> str:
    """Return a message about a run's options in the names of the measurement's."""
    for of_a_run, own in (
        ("task.atari.", "atari."),
        ("task.gymnasium.", "gymnasium."),
        ("task.games:", "game:"),
    ):
        message = message.replace(of_a_run, own)
    return message


def bench_parser(config: type[Any], *, program: str) -> jsonargparse.ArgumentParser:
    """Return the parser of a measurement's options, and of `--json`."""
    parser = config_parser(config, program=program)
    parser.add_argument(
        "--json", action="store_true", help="print one JSON object instead of a table"
    )
    return parser


def print_metrics(
    metrics: dict[str, Any], table: Callable[[dict[str, Any]], str], argv: Sequence[str]
) -> None:
    """Print metrics for people, or as one JSON object if the arguments say so."""
    print(json.dumps(metrics) if "--json" in argv else table(metrics), flush=True)


def tell(message: str) -> None:
    """Print a message on stderr: stdout has the metrics alone."""
    print(f"bench: {message}", file=sys.stderr, flush=True)
