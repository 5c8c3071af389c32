"""A report as one HTML file: texts, figures and tables, with nothing to load from anywhere.

What a run's folder says (names of games, errors, options) is a stranger's text: the template
escapes all of it.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from importlib.resources import files
from typing import Any


@dataclass(frozen=True, kw_only=True)
class Picture:
    """A figure of the report."""

    title: str
    svg: bytes
    says: str
    """What is to be seen in it, for who cannot see it, and under it for everybody."""

    @property
    def url(self) -> str:
        """The picture itself as a URL."""
        return "data:image/svg+xml;base64," + base64.b64encode(self.svg).decode()


@dataclass(frozen=True, kw_only=True)
class Clip:
    """A video of an agent at play."""

    title: str
    mp4: bytes

    @property
    def url(self) -> str:
        """The video itself as a URL."""
        return "data:video/mp4;base64," + base64.b64encode(self.mp4).decode()


@dataclass(frozen=True, kw_only=True)
class Table:
    """Rows of equal columns."""

    title: str
    rows: Sequence[Mapping[str, Any]]
    says: str = ""
    folded: bool = False
    """Shown when it is asked for."""

    @property
    def columns(self) -> list[str]:
        """The columns' names, in order."""
        return list(self.rows[0]) if self.rows else []


@dataclass(frozen=True, kw_only=True)
class Commands:
    """Commands to copy."""

    title: str
    lines: Sequence[str]


@dataclass(frozen=True, kw_only=True)
class Part:
    """What a report says of one run or evaluation."""

    title: str
    subtitle: str
    verdict: Sequence[str]
    """In plain words, the first sentence first."""
    clips: Sequence[Clip] = field(default_factory=tuple)
    """Shown side by side."""
    pictures: Sequence[Picture] = field(default_factory=tuple)
    tables: Sequence[Table] = field(default_factory=tuple)
    commands: Sequence[Commands] = field(default_factory=tuple)


def render(parts: Sequence[Part], *, made: str) -> str:
    """Return the page.

    Args:
        parts: One for each run or evaluation.
        made: By what, and when.
    """
    from jinja2 import Environment, StrictUndefined

    environment = Environment(autoescape=True, undefined=StrictUndefined, trim_blocks=True)
    source = files("leap_rl.evaluation").joinpath("templates/report.html").read_text("utf-8")
    return environment.from_string(source).render(parts=parts, made=made)
