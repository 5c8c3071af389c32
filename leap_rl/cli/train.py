"""``leap-rl train``: meta-train an initialization."""

from __future__ import annotations

from collections.abc import Sequence

from leap_rl.app.creation import create_run, resolve
from leap_rl.app.execution import run
from leap_rl.app.invocation import Invocation
from leap_rl.config import TrainConfig
from leap_rl.config.parsing import config_parser, parse


def main(argv: Sequence[str], call: Invocation) -> int:
    """Run the command; returns its exit status."""
    parser = config_parser(TrainConfig, program="leap-rl train")
    config = resolve(parse(parser, TrainConfig, argv, trusts_imports=call.trusts_imports))
    folder, config = create_run(config)
    return run(config, folder, call)
