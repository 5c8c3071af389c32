"""``leap-rl report``: one page on runs and evaluations."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

from leap_rl.cli import command_parser
from leap_rl.core.urls import is_url, redacted
from leap_rl.runs.invocation import Invocation
from leap_rl.runs.kinds import report_part
from leap_rl.runs.report import announce_report, write_report
from leap_rl.storage.open_run import open_run

_DESCRIPTION = """\
Write one self-contained HTML page on meta-training runs and evaluations: a verdict in plain words
with its uncertainty, figures, tables, configs, versions, what went wrong, and the exact commands.

It reads what is on disk, also while a run is under way, and changes nothing there. Figures
are written beside the page as PNG and SVG."""


def main(argv: Sequence[str], call: Invocation) -> int:
    """Run the command; returns its exit status."""
    given = options().parse_args(argv)
    if given.out is not None and is_url(given.out):
        raise ValueError(f"out = {redacted(given.out)}: must be a path on this machine")
    folders = [open_run(path) for path in given.paths]
    out = None if given.out is None else Path(given.out)
    page = write_report(folders, out, make_part=report_part)
    announce_report(page, opens=given.open)
    return 0


def options() -> argparse.ArgumentParser:
    """Return the parser of the options."""
    parser = command_parser("report", _DESCRIPTION)
    parser.add_argument(
        "paths", nargs="+", metavar="RUN_OR_EVAL", help="the folder of a run or an evaluation"
    )
    parser.add_argument("--out", help="the page (default: report/index.html in the first folder)")
    parser.add_argument("--open", action="store_true", help="show it in the browser")
    return parser
