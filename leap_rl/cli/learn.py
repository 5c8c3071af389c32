"""``leap-rl learn``: agents alone, without meta-learning."""

from __future__ import annotations

from collections.abc import Sequence

from leap_rl.cli.launch import carry_out, create_run, settle
from leap_rl.cli.parser import config_parser, parse
from leap_rl.cli.results import announce_agents
from leap_rl.config import LearnConfig


def main(argv: Sequence[str]) -> int:
    """Run the command; returns its exit status."""
    parser = config_parser(LearnConfig, program="leap-rl learn")
    config = settle(parse(parser, LearnConfig, argv))
    folder, config = create_run(config)
    status = carry_out(config, folder)
    if status == 0:
        announce_agents(folder)
    return status
