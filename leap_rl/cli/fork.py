"""``leap-rl fork``: a new run that starts from a checkpoint of another."""

from __future__ import annotations

import argparse
from collections.abc import Sequence

from leap_rl.cli import EXIT_USAGE, carry_out_and_announce, options_over
from leap_rl.core.lines import say
from leap_rl.core.parsing import naming_lines
from leap_rl.runs.config import TrainConfig
from leap_rl.runs.display import shown
from leap_rl.runs.header import read_run
from leap_rl.runs.invocation import Invocation
from leap_rl.runs.resumption import create_fork
from leap_rl.storage.open_run import open_run
from leap_rl.storage.run_folder import LONGEST_NUMBER

_HELP = """\
usage: leap-rl fork RUN --at S [--run_dir NEW] [OPTIONS]

Make a new run that starts from checkpoint S of the meta-training run in the folder RUN: from the
initialization after S meta-steps and the outer optimizer's state. RUN itself is only read.

  RUN            a run of leap-rl train, or a fork of one
  --at S         the checkpoint, a folder in RUN/checkpoints; 0 is the start
  --run_dir NEW  the new run's folder (default: runs/fork-DATE-TIME)
  OPTIONS        those of leap-rl train, in place of RUN's; any may change, as long as the
                 encoder's parameters keep their shapes

The new run continues the count: its first meta-step is S, and --meta.meta_steps includes those
before S. Random streams derive from the seed and the meta-step, so that a fork with nothing changed
gives the same bits as RUN. If meta.optimizer changes, the outer
optimizer starts from scratch.

For instance, to continue from meta-step 50 with a smaller rate:
  leap-rl fork runs/mine --at 50 --meta.meta_lr 0.25 --run_dir runs/mine-slower"""


def main(argv: Sequence[str], call: Invocation) -> int:
    """Run the command; returns its exit status."""
    if not argv or argv[0] in ("-h", "--help"):
        say(_HELP)
        return 0 if argv else EXIT_USAGE
    at, words = take_at(argv[1:])
    parent = read_run(open_run(argv[0]))
    program = f"leap-rl fork {shown(parent.folder)} --at S"
    stored = {**parent.options, "run_dir": None}
    options = options_over(TrainConfig, words, stored=stored, program=program)
    with naming_lines(words):
        fork = create_fork(parent, at, options, trusts_imports=call.trusts_imports)
    return carry_out_and_announce(fork, call)


def take_at(argv: Sequence[str]) -> tuple[int, list[str]]:
    """Return the value of `--at` and the other arguments.

    Raises:
        ValueError: It is missing, or no number of a checkpoint.
    """
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    parser.add_argument("--at", nargs="?", const="")
    given, options = parser.parse_known_args(argv)
    value = given.at
    if value is None:
        raise ValueError("--at S: is missing; it names the checkpoint of RUN to start from")
    if not (value.isascii() and value.isdecimal() and len(value) <= LONGEST_NUMBER):
        raise ValueError(f"--at {value}: must be the number of a checkpoint, such as 12")
    return int(value), options
