"""Writes the page that says what runs and evaluations came to."""

from __future__ import annotations

import webbrowser
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path
from tempfile import TemporaryDirectory

from leap_rl import __version__
from leap_rl.app.display import program, shown
from leap_rl.app.report_parts import part_of
from leap_rl.storage.durable_files import write_atomically
from leap_rl.storage.run_folder import RunFolder


def page_of(folder: RunFolder) -> Path:
    """Return where the page on a run or an evaluation is, unless it is written elsewhere."""
    return folder.path / "report" / "index.html"


def write_report(folders: Sequence[RunFolder], out: Path | None = None) -> Path:
    """Write the page on runs and evaluations, in the first folder unless ``out`` names it.

    Raises:
        RunFolderError: One holds no run, a damaged one, or links.
        ValueError: One is of a command that there is nothing to report of.
        OSError: The page cannot be written.
    """
    from leap_rl.evaluation.page import render

    out = out or page_of(folders[0])
    if out.is_dir():
        raise ValueError(f"out = {out}: is a folder; name a file, such as {out / 'index.html'}")
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
