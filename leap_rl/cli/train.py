"""``leap-rl train``: meta-train an initialization."""

from __future__ import annotations

from collections.abc import Sequence

from leap_rl.app.creation import create_run, resolve
from leap_rl.app.execution import run
from leap_rl.app.invocation import Invocation
from leap_rl.config import LearnConfig, TrainConfig
from leap_rl.core.parsing import config_parser, parse


def main(
    argv: Sequence[str], call: Invocation, kind: type[TrainConfig | LearnConfig] = TrainConfig
) -> int:
    """Run the command, or that of another config; returns its exit status."""
    parser = config_parser(kind, program=f"leap-rl {kind.command}")
    config = resolve(parse(parser, kind, argv, trusts_imports=call.trusts_imports))
    folder, config = create_run(config)
    return run(config, folder, call)
