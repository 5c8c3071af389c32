"""A study's folder: what it holds, who works in it, and whether it is one at all.

OUT/study.yaml        the study with every option spelled out, and a sum of it; a study file itself
OUT/runs/NAME/        a cell, an ordinary run
OUT/index.html        the page; its tables beside it, as CSV
OUT/estimates.json    the same for programs
OUT/.lock             locked while the study is carried out
"""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path, PurePosixPath
from typing import Any

import yaml

from leap_rl.core import plain_json, plain_yaml
from leap_rl.core.regular_file import LARGEST_TEXT, read_regular
from leap_rl.core.urls import is_url, redacted
from leap_rl.runs.display import shown
from leap_rl.storage.checksummed_file import CHECKSUM, checksum
from leap_rl.storage.durable_files import (
    is_temporary,
    make_folder,
    remove_leftovers,
    write_atomically,
)
from leap_rl.storage.run_lock import LockedError, is_at, locked
from leap_rl.storage.safe_open import irregular_in
from leap_rl.studies.config import StudyConfig

STUDY = "study.yaml"
RUNS = "runs"
"""The folder of its cells."""
LOCK = ".lock"
PAGE = "index.html"
ESTIMATES = "estimates.json"
TABLES = "tables"
FIGURES = "figures"
_SUM = "# SHA-256 of the lines above: "
_CELL = re.compile(r".+-[0-9]+(-held_out|-seen)?-[0-9a-f]{8}", re.DOTALL)


@dataclass(frozen=True)
class StudyFolder:
    """The folder of a study."""

    path: Path

    @classmethod
    def at(cls, place: str | Path) -> StudyFolder:
        """Return the folder of that name, which need not be there.

        Raises:
            ValueError: It is no path on this machine, or cannot be named in an option.
        """
        if is_url(str(place)):
            raise ValueError(f"out = {redacted(str(place))}: must be a folder on this machine")
        path = Path(place).absolute()
        if "," in str(path):
            raise ValueError(f"out = {path}: must have no comma, which separates initializations")
        return cls(path)

    @property
    def file(self) -> Path:
        return self.path / STUDY

    @property
    def page(self) -> Path:
        return self.path / PAGE

    @property
    def estimates(self) -> Path:
        return self.path / ESTIMATES

    def read(self) -> StudyConfig | None:
        """Return the study that was carried out here last; none if there was none.

        Raises:
            ValueError: Its file is damaged, or there are links in the folder.
        """
        if not os.path.lexists(self.file):
            return None
        self.refuse_links()
        return self.load()

    def as_begun(self, study: StudyConfig) -> StudyConfig:
        """Return the study with the precision that its agents had where it was begun, if it was.

        What `auto` means hangs on the processor, and would make other cells on another one.
        """
        before = self.read()
        if before is None or study.agent.precision != "auto":
            return study
        return replace(study, agent=replace(study.agent, precision=before.agent.precision))

    def load(self) -> StudyConfig:
        """Return the study, whatever else lies here; ValueError as of `read`."""
        try:
            text, mark, digest = _read(self.file).decode().rpartition(_SUM)
            if mark and hashlib.sha256(text.encode()).hexdigest() != digest.strip():
                raise ValueError("it was changed there, or is damaged; change a copy elsewhere")
            return StudyConfig.from_mapping(plain_yaml.load(text + digest * (not mark)))
        except (OSError, yaml.YAMLError, ValueError, TypeError, AttributeError) as error:
            reason = " ".join(str(error).split())
            raise ValueError(
                f"{shown(self.file)}: is not as leap-rl study wrote it ({reason}); remove it, and "
                "carry out the study's own file again: finished cells are kept"
            ) from None

    def read_estimates(self) -> dict[str, Any]:
        """Return what the study came to, for programs.

        Raises:
            ValueError: It is missing or damaged.
        """
        try:
            document: dict[str, Any] = plain_json.load(_read(self.estimates))
            # An older leap_rl wrote none.
            if CHECKSUM in document and document.pop(CHECKSUM) != checksum(document):
                raise ValueError("its checksum is not the one recorded")
            answer, best, rows = document["answer"], document["best_start"], document.get("rows")
            if not (
                isinstance(answer, list)
                and all(isinstance(sentence, str) for sentence in answer)
                and (best is None or _is_within(best))
                and isinstance(rows, list | None)
                and all(isinstance(row, dict) for row in rows or ())
            ):
                raise ValueError("it has no answer")
        except (OSError, ValueError, AttributeError, KeyError, TypeError) as error:
            raise ValueError(
                f"{shown(self.estimates)}: cannot be read ({error}); carry the study out again"
            ) from None
        return document

    def files_of_page(self) -> set[Path]:
        """Return the tables and figures that the page was written with; none if it was not."""
        with suppress(ValueError):
            names = self.read_estimates().get("files")
            return {
                self.path / name
                for name in (names if isinstance(names, list) else ())
                if isinstance(name, str)
                and _is_within(name)
                and str(PurePosixPath(name).parent) in (TABLES, FIGURES)
            }
        return set()

    @contextmanager
    def lock(self) -> Iterator[Callable[[], None]]:
        """Be the only study that works here; yields what raises OSError if it no longer is.

        Raises:
            ValueError: Another one does, or the folder holds something else.
            OSError: It cannot be written to.
        """
        self.check()
        make_folder(self.path)
        try:
            with locked(self.path / LOCK) as held:
                remove_leftovers(self.path)
                yield partial(self._check_held, held)
        except LockedError as error:
            raise ValueError(
                f"out = {shown(self.path)}: {error} works on this study; wait for it, stop it, or "
                "choose another folder"
            ) from None

    def _check_held(self, held: os.stat_result) -> None:
        if not is_at(path := self.path / LOCK, held):
            raise OSError(
                f"{shown(path)}: is gone, or another one; a study's folder stays where it is while "
                "the study is carried out: call the same command on it where it is now"
            )

    def check(self) -> None:
        """Raise ValueError for a folder that holds something else than a study or a calibration.

        A study whose file was removed is one by what else it wrote.
        """
        if self.path.exists() and not self.path.is_dir():
            raise ValueError(f"out = {shown(self.path)}: is a file; name a folder")
        if not self.path.is_dir():
            return
        if not os.path.lexists(self.file):
            self._check_is_left()
        self.refuse_links()

    def _check_is_left(self) -> None:
        """Refuse what no calibration, which writes the study at its end, and no study left."""
        others = _names(self.path) - {LOCK, PAGE, ESTIMATES, TABLES, FIGURES}
        if others == {RUNS} and all(map(_CELL.fullmatch, _names(self.path / RUNS))):
            others = set()
        if others:
            what = "a run" if "config.yaml" in others else f"{min(others)}, and no study"
            raise ValueError(
                f"out = {shown(self.path)}: holds {what}; choose a folder of the study's own"
            )

    def refuse_links(self) -> None:
        """Raise ValueError for the first of `links`."""
        for problem in self.links():
            raise ValueError(problem)

    def links(self) -> Iterator[str]:
        """Yield a line for each link, pipe and device; those within a cell are its run's to find.

        A cell that is a link, or lies behind one, would be computed outside of the folder.
        """
        below = [self.path / name for name in (RUNS, TABLES)]
        for folder in (self.path, *(one for one in below if not one.is_symlink())):
            for path, kind in irregular_in(folder):
                yield (
                    f"{shown(path)}: is {kind}, and what a study reads and writes must lie in its "
                    "folder; put a file or folder in its place"
                )

    def write(self, study: StudyConfig) -> None:
        """Keep a study; the folder's lock must be held."""
        text = f"# leap-rl study {shown(self.path)} resumes it.\n"
        text += plain_yaml.dump(study.to_mapping())
        text += f"{_SUM}{hashlib.sha256(text.encode()).hexdigest()}\n"
        write_atomically(self.file, text.encode(), root=self.path)


def _read(path: Path) -> bytes:
    try:
        return read_regular(path, LARGEST_TEXT)
    except OSError as error:
        raise ValueError(error.strerror) from None


def _names(folder: Path) -> set[str]:
    return {one.name for one in folder.iterdir() if not is_temporary(one.name)}


def _is_within(name: str) -> bool:
    """Whether a name is that of something within a folder."""
    parts = PurePosixPath(name).parts
    return bool(parts) and "\0" not in name and not {"..", "/"} & {*parts}
