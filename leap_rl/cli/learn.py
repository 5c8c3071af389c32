"""``leap-rl learn``: agents alone, without meta-learning."""

from __future__ import annotations

from collections.abc import Sequence

from leap_rl.app.creation import create_run, resolve
from leap_rl.app.execution import run
from leap_rl.app.invocation import Invocation
from leap_rl.config import LearnConfig
from leap_rl.config.parsing import config_parser, parse


def main(argv: Sequence[str], call: Invocation) -> int:
    """Run the command; returns its exit status."""
    parser = config_parser(LearnConfig, program="leap-rl learn")
    config = resolve(parse(parser, LearnConfig, argv, trusts_imports=call.trusts_imports))
    folder, config = create_run(config)
    return run(config, folder, call)
