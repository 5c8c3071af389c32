"""``leap-rl train``: meta-train an initialization."""

from __future__ import annotations

from collections.abc import Sequence

from leap_rl.cli import carry_out_and_announce
from leap_rl.core.parsing import config_parser, naming_lines, parse
from leap_rl.runs.config import LearnConfig, TrainConfig
from leap_rl.runs.creation import create_run, resolve
from leap_rl.runs.invocation import Invocation


def main(
    argv: Sequence[str], call: Invocation, kind: type[TrainConfig | LearnConfig] = TrainConfig
) -> int:
    """Run the command, or that of another config; returns its exit status."""
    parser = config_parser(kind, program=f"leap-rl {kind.command}")
    with naming_lines(argv):
        config = resolve(parse(parser, kind, argv, trusts_imports=call.trusts_imports))
        run = create_run(config)
    return carry_out_and_announce(run, call)
