"""Tables of results as files."""

from __future__ import annotations

import csv
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any


def write_table(rows: Sequence[Mapping[str, Any]], path: Path) -> list[Path]:
    """Write rows of equal columns as CSV and as a table in Markdown, and return the files."""
    columns = list(rows[0])
    path.parent.mkdir(parents=True, exist_ok=True)
    as_csv, as_markdown = path.with_suffix(".csv"), path.with_suffix(".md")
    with as_csv.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, columns, lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)
    as_markdown.write_text(markdown(rows), encoding="utf-8")
    return [as_csv, as_markdown]


def markdown(rows: Sequence[Mapping[str, Any]]) -> str:
    """Return rows of equal columns as a table in Markdown."""
    columns = list(rows[0])
    lines = ["| " + " | ".join(columns) + " |", "|" + "---|" * len(columns)]
    lines += ["| " + " | ".join(str(row[name]) for name in columns) + " |" for row in rows]
    return "\n".join(lines) + "\n"
