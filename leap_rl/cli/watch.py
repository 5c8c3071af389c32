"""``leap-rl watch``: shows the state of a run that some other process computes. It only reads."""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence

from leap_rl.cli import command_parser
from leap_rl.core.lines import say
from leap_rl.runs.config import Config
from leap_rl.runs.display import resume_command, shown
from leap_rl.runs.header import read_run
from leap_rl.runs.invocation import Invocation
from leap_rl.runs.kinds import kind_of
from leap_rl.storage.open_run import open_run
from leap_rl.storage.run_folder import RunFolder
from leap_rl.storage.run_lock import Holder
from leap_rl.tracking.console import make_console, print_status
from leap_rl.tracking.live import read_live

LOOK_EVERY_S = 0.5
OLD_S = 10.0
"""A view that is older than this says so."""


def main(argv: Sequence[str], call: Invocation) -> int:
    """Run the command; returns its exit status."""
    parser = command_parser(
        "watch",
        "Show the state of the run in the folder RUN, from another terminal or another "
        "machine that sees the folder, until the run ends or Ctrl-C. It only reads.",
    )
    parser.add_argument("run", metavar="RUN", help="the run's folder")
    parser.add_argument(
        "--once", action="store_true", help="print the table once and exit, for scripts"
    )
    options = parser.parse_args(argv)
    folder = open_run(options.run)
    config = read_run(folder).config
    if options.once:
        _print_once(folder, config)
        return 0
    with make_console("auto", stream=sys.stdout) as console:
        seen = False
        while (holder := folder.worker()) is not None:
            folder.refresh()
            live = read_live(folder.path)
            if live is not None:
                console.show(live.status)
            elif not seen:
                console.message(_silent(folder, holder))
            seen = True
            time.sleep(LOOK_EVERY_S)
    folder.refresh(at_once=True)  # its last checkpoint comes just before its end
    say(_ended(folder, read_run(folder).config))  # a resume may have asked for more meta-steps
    return 0


def _print_once(folder: RunFolder, config: Config) -> None:
    holder = folder.worker()
    live = None if holder is None else read_live(folder.path)
    if holder is None:
        say(_ended(folder, config))
    elif live is None:
        say(_silent(folder, holder))
    else:
        print_status(live.status, sys.stdout)
        if live.age_s > OLD_S:
            say(f"as of {live.age_s:,.0f} s ago")


def _silent(folder: RunFolder, holder: Holder) -> str:
    return f"{shown(folder)}: {holder} works on it, and has shown nothing yet"


def _ended(folder: RunFolder, config: Config) -> str:
    """Say in one line what became of a run that no process works on."""
    kind, run, done = kind_of(config), shown(folder), folder.latest() or 0
    rounds, progress = kind.rounds(config), kind.progress(config, done)
    made = f" after {progress}" if progress else ""
    if progress and done > rounds:
        return f"{run}: is damaged: it has {done} meta-steps, of {rounds} that were to be made"
    if done >= rounds:
        return f"{run}: finished{made}"
    return f"{run}: stopped{made}; continue with: {resume_command(folder, config.imports)}"
