"""``leap-rl train``: meta-train an initialization."""

from __future__ import annotations

from collections.abc import Sequence

from leap_rl.cli.launch import carry_out, create_run, settle
from leap_rl.cli.parser import config_parser, parse
from leap_rl.cli.results import announce_initialization
from leap_rl.config import TrainConfig


def main(argv: Sequence[str]) -> int:
    """Run the command; returns its exit status."""
    parser = config_parser(TrainConfig, program="leap-rl train")
    config = settle(parse(parser, TrainConfig, argv))
    folder, config = create_run(config)
    status = carry_out(config, folder)
    if status == 0:
        announce_initialization(folder, config)
    return status
