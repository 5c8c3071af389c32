"""``leap-rl bench``: how fast it is here, and where the time goes."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from importlib import import_module
from typing import Any, Final

import jsonargparse

from leap_rl.app.errors import UsageError
from leap_rl.app.invocation import Invocation
from leap_rl.bench import config
from leap_rl.config.parsing import config_parser, parse

BENCHES: Final[dict[str, Any]] = {"throughput": config.ThroughputConfig}
"""The config of each measurement; the measurement itself is `leap_rl.bench.NAME`."""


def main(argv: Sequence[str], call: Invocation) -> int:
    """Run the command; returns its exit status."""
    return run(
        argv,
        BENCHES,
        call,
        program="leap-rl bench",
        package="leap_rl.bench",
        example="throughput --game breakout",
    )


def run(
    argv: Sequence[str],
    benches: Mapping[str, Any],
    call: Invocation,
    *,
    program: str,
    package: str,
    example: str,
) -> int:
    """Run one of several measurements.

    Args:
        argv: Its name and its options.
        benches: The config of each by name.
        call: Of the program.
        program: What the user called.
        package: Where the modules of these names are.
        example: Arguments to start with.

    Returns:
        The exit status.

    Raises:
        UsageError: There is no such measurement, or not with these options.
    """
    name, *rest = argv or ["--help"]
    if name in ("-h", "--help"):
        print(_usage(benches, program, example))
        return 0
    if name not in benches:
        raise UsageError(f"bench {name}: no such measurement; one of {', '.join(benches)}")
    rest, as_json = take_json(rest)
    parser = bench_parser(benches[name], program=f"{program} {name}")
    try:
        options = parse(
            parser,
            benches[name],
            join_list(rest, "--trainers"),
            trusts_imports=call.trusts_imports,
        )
        bench = import_module(f"{package}.{name}")  # which takes seconds
        metrics = bench.measure(options, tell)
    except ValueError as error:
        raise UsageError(_own_names(str(error))) from error
    print_metrics(metrics, bench.table, as_json=as_json)
    return 0


def _own_names(message: str) -> str:
    """Return a message with the options' names: some speak of themselves as a part of a run."""
    for of_a_run, own in (
        ("task.atari.", "atari."),
        ("task.gymnasium.", "gymnasium."),
        ("task.games:", "game:"),
    ):
        message = message.replace(of_a_run, own)
    return message


def bench_parser(config: type[Any], *, program: str) -> jsonargparse.ArgumentParser:
    """Return the parser of a measurement's options."""
    parser = config_parser(config, program=program)
    add_json(parser)
    return parser


def add_json(parser: jsonargparse.ArgumentParser) -> None:
    """Explain `--json` in the help; :func:`take_json` is what reads it."""
    parser.add_argument(
        "--json", action="store_true", help="print one JSON object instead of a table"
    )


def take_json(argv: Sequence[str]) -> tuple[list[str], bool]:
    """Return the arguments without `--json`, and whether it was there."""
    return [word for word in argv if word != "--json"], "--json" in argv


def join_list(argv: Sequence[str], option: str) -> list[str]:
    """Return the arguments with several values of an option, as in `1 2 4`, made one list."""
    if option not in argv:
        return list(argv)
    start = argv.index(option) + 1
    end = next((i for i in range(start, len(argv)) if argv[i].startswith("-")), len(argv))
    values = argv[start:end]
    if len(values) > 1:
        values = [f"[{','.join(values)}]"]
    return [*argv[:start], *values, *argv[end:]]


def print_metrics(metrics: dict[str, Any], table: Any, *, as_json: bool) -> None:
    """Print metrics as one JSON object, or for people."""
    print(json.dumps(metrics) if as_json else table(metrics), flush=True)


def tell(message: str) -> None:
    """Say what is going on; not on stdout, which has the metrics alone."""
    print(f"bench: {message}", file=sys.stderr, flush=True)


def _usage(benches: Mapping[str, Any], program: str, example: str) -> str:
    width = max(map(len, benches))
    listed = "\n".join(
        f"  {name:<{width}}  {options.__doc__.splitlines()[0]}" for name, options in benches.items()
    )
    return f"""\
usage: {program} MEASUREMENT [OPTIONS]

Measure how fast it is here. Metrics go to stdout, as a table or with --json as one JSON object.

measurements:
{listed}

  {program} MEASUREMENT --help    every option, with its default

start here:
  {program} {example}"""
