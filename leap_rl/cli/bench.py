"""``leap-rl bench``: measures the speed of this machine, and where the time goes."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Sequence
from importlib import import_module
from typing import Any, Final

import jsonargparse

from leap_rl.bench.config import ThroughputConfig
from leap_rl.core.lines import say
from leap_rl.core.parsing import config_parser, parse
from leap_rl.runs.invocation import Invocation

BENCHES: Final[dict[str, Any]] = {"throughput": ThroughputConfig}
"""The config of each measurement."""

_USAGE = """\
usage: leap-rl bench throughput [OPTIONS]

Measure how fast agents learn on this machine. Metrics go to stdout, as a table, or with --json as
one JSON object.

  leap-rl bench throughput --help    every option, with its default

start here:
  leap-rl bench throughput --game breakout"""


def main(argv: Sequence[str], call: Invocation) -> int:
    """Run the command; returns its exit status."""
    name, *rest = argv or ["--help"]
    if name in ("-h", "--help"):
        say(_USAGE)
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
    """Measure with the `measure` of a module and print the metrics with its `table`.

    Raises:
        ValueError: An option is invalid; named as the measurement's option, not as a run's.
    """
    parser = bench_parser(config, program=program)
    try:
        options = parse(parser, config, argv, trusts_imports=trusts_imports)
        bench = import_module(module)  # after the options were checked: it takes seconds
        metrics = bench.measure(options, tell)
    except ValueError as error:
        message = str(error)
        for of_a_run, own in (
            ("task.atari.", "atari."),
            ("task.gymnasium.", "gymnasium."),
            ("task.games:", "game:"),
            ("task.atari:", "atari:"),
            ("task.gymnasium:", "gymnasium:"),
            ("with task.kind = ", "on games of the kind "),
        ):
            message = message.replace(of_a_run, own)
        raise ValueError(message) from error
    print_metrics(metrics, bench.table, argv)


def bench_parser(config: type[Any], *, program: str) -> jsonargparse.ArgumentParser:
    """Return the parser of a measurement's options and `--json`."""
    parser = config_parser(config, program=program)
    parser.add_argument(
        "--json", action="store_true", help="print one JSON object instead of a table"
    )
    return parser


def print_metrics(
    metrics: dict[str, Any], table: Callable[[dict[str, Any]], str], argv: Sequence[str]
) -> None:
    """Print metrics as a table, or as one JSON object if `argv` has `--json`."""
    say(json.dumps(metrics) if "--json" in argv else table(metrics))


def tell(message: str) -> None:
    """Print progress on stderr, since stdout holds nothing but the metrics."""
    say(f"bench: {message}", file=sys.stderr)
