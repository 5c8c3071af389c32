"""A report as one HTML file that loads nothing.

The texts of a run's folder (names of games, errors, options) are untrusted: the template escapes
them.
"""

from __future__ import annotations

import csv
import io
import re
from base64 import b64encode
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from importlib.resources import files
from pathlib import Path
from typing import Any


@dataclass(frozen=True, kw_only=True)
class Picture:
    """A plot of the report."""

    title: str
    svg: bytes
    narrow: bytes
    """The same for a narrow screen: panels one under the other."""
    says: str
    """Its caption and its alternative text."""


@dataclass(frozen=True, kw_only=True)
class Clip:
    """A video of an agent at play."""

    title: str
    mp4: bytes


@dataclass(frozen=True, kw_only=True)
class Table:
    """Rows of equal columns, at least one."""

    title: str
    rows: Sequence[Mapping[str, Any]]
    says: str = ""
    folded: bool = False
    """Whether the reader has to unfold it."""


@dataclass(frozen=True, kw_only=True)
class Part:
    """The part of a report on one run or evaluation."""

    title: str
    subtitle: str
    verdict: Sequence[str]
    """Sentences."""
    clips: Sequence[Clip] = field(default_factory=tuple)
    """Shown side by side."""
    pictures: Sequence[Picture] = field(default_factory=tuple)
    tables: Sequence[Table] = field(default_factory=tuple)
    commands: Mapping[str, Sequence[str]] = field(default_factory=dict)
    """To copy, by title."""


def csv_files(part: Part) -> dict[Path, bytes]:
    """Return a part's tables as CSV, by paths as `tables/agent_steps_saved.csv`."""
    return {
        Path("tables", f"{re.sub(r'[^a-z0-9]+', '_', table.title.lower()).strip('_')}.csv"): _csv(
            table
        )
        for table in part.tables
    }


def _csv(table: Table) -> bytes:
    text = io.StringIO()
    columns = dict.fromkeys(column for row in table.rows for column in row)
    writer = csv.DictWriter(text, fieldnames=list(columns), lineterminator="\n")
    writer.writeheader()
    writer.writerows(table.rows)
    return text.getvalue().encode()


def render(parts: Sequence[Part], *, made: str) -> str:
    """Return the page; `made` is its footer, which names version and date."""
    from jinja2 import Environment, StrictUndefined

    environment = Environment(autoescape=True, undefined=StrictUndefined, trim_blocks=True)
    environment.filters["base64"] = lambda content: b64encode(content).decode()
    source = files("leap_rl.evaluation").joinpath("templates/report.html").read_text("utf-8")
    return environment.from_string(source).render(parts=parts, made=made)
