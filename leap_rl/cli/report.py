"""``leap-rl report``: one page that says what a run or an evaluation came to."""

from __future__ import annotations

import argparse
import webbrowser
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path
from tempfile import TemporaryDirectory

from leap_rl import __version__
from leap_rl.cli import UsageError
from leap_rl.cli.launch import program, shown
from leap_rl.cli.report_parts import part_of
from leap_rl.storage.durable_files import write_atomically
from leap_rl.storage.run_folder import RunFolder
from leap_rl.storage.run_folders import run_folder
from leap_rl.storage.urls import is_url, redacted

_DESCRIPTION = """\
Write one self-contained HTML page on meta-training runs and evaluations: a verdict in plain words
with its uncertainty, figures, tables, configs, versions, what went wrong, and the exact commands.

It is made from what is on disk, also while a run is under way, and changes nothing of it. Figures
are written beside the page as PNG and SVG."""


def main(argv: Sequence[str]) -> int:
    """Run the command; returns its exit status."""
    given = options().parse_args(argv)
    if given.out is not None and is_url(given.out):
        raise UsageError(f"out = {redacted(given.out)}: must be a path on this machine")
    folders = [run_folder(path) for path in given.paths]
    page = write_report(folders, None if given.out is None else Path(given.out))
    announce_report(page, opens=given.open)
    return 0


def options() -> argparse.ArgumentParser:
    """Return the parser of the options."""
    parser = argparse.ArgumentParser(
        prog="leap-rl report",
        description=_DESCRIPTION,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("paths", nargs="+", metavar="RUN_OR_EVAL", help="folders, in any number")
    parser.add_argument(
        "--out", help="the page; PATH/report/index.html of the first one if not given"
    )
    parser.add_argument("--open", action="store_true", help="show it in the browser")
    return parser


def write_report(folders: Sequence[RunFolder], out: Path | None = None) -> Path:
    """Write the page on runs and evaluations, and return where it is.

    Args:
        folders: Theirs.
        out: The page; in the first one's folder unless given.

    Raises:
        RunFolderError: One holds no run, a damaged one, or links.
        UsageError: One is of a command that there is nothing to report of.
        OSError: The page cannot be written.
    """
    from leap_rl.evaluation.page import render

    out = out or folders[0].path / "report" / "index.html"
    if out.is_dir():
        raise UsageError(f"out = {out}: is a folder; name a file, such as {out / 'index.html'}")
    made = f"Made by leap_rl {__version__} on {datetime.now():%Y-%m-%d at %H:%M}"
    with TemporaryDirectory(prefix="leap_rl-") as aside:
        figures = Path(aside)
        parts = [
            part_of(folder, figures / (f"{number}" if number else ""))
            for number, folder in enumerate(folders)
        ]
        files = {path.relative_to(figures): path for path in sorted(figures.rglob("*.*"))}
        contents = {out.parent / name: path.read_bytes() for name, path in files.items()}
    contents[out] = render(parts, made=made).encode()
    within = next((folder.path for folder in folders if out.is_relative_to(folder.path)), None)
    for path, content in contents.items():
        write_atomically(path, content, root=within)
    for folder in folders:
        if out.is_relative_to(folder.path):
            whole = out.parent if out.parent != folder.path else out
            folder.publish(whole.relative_to(folder.path).as_posix())
    return out


def announce_report(page: Path, *, opens: bool = False) -> None:
    """Say where the page is, and show it if asked to."""
    print(f"  report  {shown(page)}")
    if opens and not webbrowser.open(page.absolute().as_uri()):
        print(
            f"          no browser was found here; open it elsewhere, or {program()} report --help"
        )
